//! The section of a result on a page: its verdict, its figures and charts, and everything on which they depend.

use flagperf_report::{Section, headline_rows, sections, verdict_word};
use flagperf_result::{Provenance, Record, Validity};
use flagperf_verify::{CaseReport, Standing, VerifyFinding};
use serde::Serialize;

use super::curves::read_curves;
use super::figures::{FigureGroup, figures};
use super::result::{Check, ReadResult, text};
use super::words::Language;

/// Most findings, warnings and hashes of a kind that a page lists; the record and `verify` have all of them.
const LISTED_MAX: usize = 50;
/// The rows of a measured loop that belong to the headline: with which certainty its figures are known.
const CERTAINTY: [&str; 4] = ["95 % interval", "step times", "latency of a step", "latency at most"];

/// A section of a page.
#[derive(Debug, Serialize)]
pub(super) struct ResultSection {
    pub(super) id: String,
    pub(super) key: String,
    pub(super) place: String,
    pub(super) path: String,
    state: &'static str,
    validity: &'static str,
    is_invalid: bool,
    check: CheckText,
    reasons: Vec<String>,
    notes: Vec<String>,
    failures: Vec<[String; 2]>,
    departures: Vec<String>,
    headline: Vec<[String; 2]>,
    groups: Vec<FigureGroup>,
    /// Why a file has no chart.
    faults: Vec<String>,
    tables: Vec<Table>,
    warnings: Vec<String>,
    more_warnings: usize,
    settings: Vec<[String; 3]>,
    provenance: Vec<[String; 2]>,
}

#[derive(Debug, Serialize)]
struct Table {
    title: String,
    rows: Vec<[String; 2]>,
}

/// What `verify` found, in words.
#[derive(Debug, Serialize)]
struct CheckText {
    name: &'static str,
    is_wrong: bool,
    is_large: bool,
    findings: Vec<String>,
    more_findings: Option<String>,
    unchecked: Vec<String>,
}

/// Creates the section of a result, with charts of at most `points_max` points; without charts if that is 0.
pub(super) fn section(
    result: &ReadResult,
    check: &Check,
    id: String,
    points_max: usize,
    language: Language,
) -> ResultSection {
    let record = &result.record;
    let folder = result.folder().filter(|_| points_max > 0);
    let curves = folder.map(|folder| read_curves(folder, record, points_max));
    let groups = if points_max > 0 { figures(record, curves.as_ref(), language) } else { Vec::new() };
    let failures = record.failures.iter().map(|failure| {
        let step = failure.step.map(|step| format!("{}: ", step.name())).unwrap_or_default();
        [text(&format!("{step}{}", failure.reason)), text(&failure.hint)]
    });
    ResultSection {
        id,
        key: text(&record.key()),
        place: result.place(),
        path: text(&result.path.display().to_string()),
        state: verdict_word(record.status),
        validity: record.validity.verdict.name(),
        is_invalid: record.validity.verdict == Validity::Invalid,
        check: check_text(check, language),
        reasons: record.validity.reasons.iter().take(LISTED_MAX).map(|reason| text(reason)).collect(),
        notes: record.validity.notes.iter().take(LISTED_MAX).map(|note| text(note)).collect(),
        failures: failures.take(LISTED_MAX).collect(),
        departures: record.departures.iter().take(LISTED_MAX).map(|departure| text(departure)).collect(),
        headline: headline(record, language),
        groups,
        faults: curves.map_or_else(Vec::new, |curves| curves.faults),
        tables: tables(record, language),
        warnings: record.warnings.iter().take(LISTED_MAX).map(|warning| text(warning)).collect(),
        more_warnings: record.warnings.len().saturating_sub(LISTED_MAX),
        settings: settings(record),
        provenance: provenance(result, language),
    }
}

/// Returns the headline figures in the words of the report, each loop with the certainty of its figures.
fn headline(record: &Record, language: Language) -> Vec<[String; 2]> {
    let sections = sections(record);
    let certainty = |name: &str| {
        let own = sections.iter().filter(|section| section.title == name).flat_map(|section| &section.rows);
        own.filter(|(name, _)| CERTAINTY.contains(&name.as_str())).cloned().collect::<Vec<_>>()
    };
    let rows = headline_rows(record).into_iter().flat_map(|(name, value)| {
        let certainty = certainty(&name);
        std::iter::once((name, value)).chain(certainty)
    });
    rows.map(|(name, value)| [language.name(&name).to_owned(), text(&value)]).collect()
}

fn tables(record: &Record, language: Language) -> Vec<Table> {
    let title = |title: &str| {
        if title.is_empty() { language.word("FlagPerf's rows").to_owned() } else { language.name(title).to_owned() }
    };
    let row = |(name, value): (String, String)| [language.name(&name).to_owned(), text(&value)];
    let table =
        |Section { title: own, rows }: Section| Table { title: title(&own), rows: rows.into_iter().map(row).collect() };
    sections(record).into_iter().map(table).collect()
}

fn check_text(check: &Check, language: Language) -> CheckText {
    let is_wrong = check.is_wrong();
    let none = CheckText {
        name: check.name(),
        is_wrong,
        is_large: true,
        findings: Vec::new(),
        more_findings: None,
        unchecked: Vec::new(),
    };
    let Check::Verified(report) = check else { return none };
    let CaseReport { findings, more_findings, unchecked, standing, .. } = &**report;
    let more = findings.len().saturating_sub(LISTED_MAX) as u64 + more_findings.values().sum::<u64>();
    let unchecked = unchecked.iter().filter(|_| *standing == Standing::NotVerifiable);
    CheckText {
        is_large: false,
        findings: findings.iter().take(LISTED_MAX).map(|finding| finding_text(finding, language)).collect(),
        more_findings: (more > 0).then(|| language.sentence("Further findings: {}", &[&more.to_string()])),
        unchecked: unchecked.take(LISTED_MAX).map(|reason| text(reason)).collect(),
        ..none
    }
}

fn finding_text(VerifyFinding { file, what, expected, found }: &VerifyFinding, language: Language) -> String {
    let values = match (expected, found) {
        (Some(expected), Some(found)) => language.sentence("expected {}, found {}", &[expected, found]),
        (Some(expected), None) => language.sentence("expected {}", &[expected]),
        (None, Some(found)) => language.sentence("found {}", &[found]),
        (None, None) => String::new(),
    };
    let parts = [file, what, &values].into_iter().filter(|part| !part.is_empty()).map(String::as_str);
    text(&parts.collect::<Vec<_>>().join(": "))
}

fn settings(record: &Record) -> Vec<[String; 3]> {
    let row = |(name, setting): (&String, &flagperf_result::Setting)| {
        let value = setting.value.as_str().map_or_else(|| setting.value.to_string(), str::to_owned);
        [text(name), text(&value), text(&setting.origin)]
    };
    record.settings.iter().map(row).collect()
}

/// Returns the versions and hashes on which the figures depend, and the machines.
fn provenance(result: &ReadResult, language: Language) -> Vec<[String; 2]> {
    let record = &result.record;
    let Provenance { flagperf, rustc, binary_sha256, git_revision, git_clean, run_seed, config_sha256, .. } =
        &record.provenance;
    let clean = git_clean.map(|is_clean| if is_clean { "as in the revision" } else { "differs from the revision" });
    let image = record.provenance.image.as_ref().map(|image| format!("{} {}", image.name, image.id));
    let mut rows: Vec<(&'static str, Option<String>)> = vec![
        ("started", Some(record.started.clone())),
        ("digest", result.digest.clone()),
        ("flagperf", Some(flagperf.clone())),
        ("Rust compiler", Some(rustc.clone())),
        ("program", binary_sha256.clone()),
        ("git revision", git_revision.clone()),
        ("checkout", clean.map(|clean| language.word(clean).to_owned())),
        ("seed", serde_json::to_value(run_seed).ok().and_then(|seed| Some(seed.as_str()?.to_owned()))),
        ("image", image),
        ("configuration", Some(config_sha256.clone())),
        ("dataset", record.provenance.dataset_sha256.clone()),
        ("events", Some(record.provenance.events_sha256.clone())),
    ];
    for host in &record.hosts {
        let machine = &host.machine;
        let parts = [&host.name, &machine.hostname, &machine.cpu, &machine.architecture];
        rows.push(("host", Some(parts.into_iter().map(String::as_str).collect::<Vec<_>>().join(", "))));
        rows.push(("system", Some(format!("{}, {}", machine.system, machine.kernel))));
    }
    rows.extend(hashes(record, language));
    let row = |(name, value): (&'static str, Option<String>)| {
        value.filter(|value| !value.is_empty()).map(|value| [language.word(name).to_owned(), text(&value)])
    };
    rows.into_iter().filter_map(row).collect()
}

/// Returns the hashes of files, the first of each kind.
fn hashes(record: &Record, language: Language) -> Vec<(&'static str, Option<String>)> {
    let Provenance { scripts_sha256, config_files_sha256, model_sha256, weights_sha256, .. } = &record.provenance;
    let kinds = [
        ("script", scripts_sha256),
        ("configuration", config_files_sha256),
        ("model", model_sha256),
        ("weights", weights_sha256),
    ];
    let of_kind = |(name, files): (&'static str, &indexmap::IndexMap<String, String>)| {
        let shown: Vec<_> =
            files.iter().take(LISTED_MAX).map(|(path, hash)| (name, Some(format!("{path}  {hash}")))).collect();
        let more = files.len().saturating_sub(LISTED_MAX);
        shown
            .into_iter()
            .chain((more > 0).then(|| (name, Some(language.sentence("{} more", &[&more.to_string()])))))
            .collect::<Vec<_>>()
    };
    kinds.into_iter().flat_map(of_kind).collect()
}
