//! The findings of `flagperf lint`, as text and as JSON.

use std::fmt::Write as _;

use serde::Serialize;

use super::lint_pairs::Pair;
use super::output::counted;
use flagperf_config::{Finding, Origin};
use flagperf_core::event::Level;
use flagperf_core::text::{escape_json, escape_lines};
use flagperf_report::{columns, plain_table};

/// Maximum number of pairs that the text names with a finding.
const PAIRS_NAMED: usize = 4;

/// The checked pairs, each with its findings, and the different findings, each with its pairs.
pub(super) struct LintReport {
    pairs: Vec<(Pair, Vec<Finding>)>,
    findings: Vec<LintFinding>,
}

/// A finding and the pairs that have it; without pairs, it is about the site or a vendor.
struct LintFinding {
    finding: Finding,
    pairs: Vec<Pair>,
}

impl LintReport {
    /// Merges the findings of the pairs, which may share files. A finding of `general` needs no pairs.
    pub(super) fn new(general: Vec<Finding>, pairs: Vec<(Pair, Vec<Finding>)>) -> Self {
        let mut findings: Vec<LintFinding> = Vec::new();
        let shared = general.len();
        findings.extend(general.into_iter().map(|finding| LintFinding { finding, pairs: Vec::new() }));
        for (pair, own) in &pairs {
            for finding in own {
                let finding = Finding { cases: Vec::new(), ..finding.clone() };
                match findings.iter().position(|known| known.finding == finding) {
                    Some(at) if at < shared || findings[at].pairs.contains(pair) => {}
                    Some(at) => findings[at].pairs.push(pair.clone()),
                    None => findings.push(LintFinding { finding, pairs: vec![pair.clone()] }),
                }
            }
        }
        findings.sort_by_key(|found| std::cmp::Reverse(found.finding.level));
        LintReport { pairs, findings }
    }

    /// Returns the number of different findings of a level.
    pub(super) fn count(&self, level: Level) -> usize {
        number_of(level, self.findings.iter().map(|found| &found.finding))
    }
}

/// Formats one line for each pair, then the findings: errors, warnings, notes.
pub(super) fn table_text(report: &LintReport) -> String {
    let title = ["CASE", "VENDOR", "FRAMEWORK", "RESULT"].map(str::to_owned);
    let rows = report.pairs.iter().map(|(pair, findings)| {
        let or_none = |name: &Option<String>| name.clone().unwrap_or_else(|| "-".to_owned());
        [case_name(pair), or_none(&pair.vendor), or_none(&pair.framework), summary(findings)]
    });
    let mut text = plain_table([title].into_iter().chain(rows), columns());
    for found in &report.findings {
        let _ = write!(text, "\n{}: {}\n{}", level_word(found.finding.level), found.finding, pairs_line(found));
    }
    let total =
        [Level::Error, Level::Warning, Level::Info].map(|level| counted(report.count(level), level_word(level)));
    let _ = writeln!(text, "\n{} checked: {}", counted(report.pairs.len(), "pair"), total.join(", "));
    escape_lines(&text).into_owned()
}

/// Returns the case of a pair, and whether it is trained.
fn case_name(pair: &Pair) -> String {
    if pair.training { format!("{} (training)", pair.case) } else { pair.case.clone() }
}

/// Returns `ok`, or the numbers of errors and warnings.
fn summary(findings: &[Finding]) -> String {
    let counts = [Level::Error, Level::Warning].map(|level| (number_of(level, findings), level_word(level)));
    let counts = counts.into_iter().filter(|(number, _)| *number > 0).map(|(number, word)| counted(number, word));
    let counts: Vec<String> = counts.collect();
    if counts.is_empty() { "ok".to_owned() } else { counts.join(", ") }
}

fn number_of<'f>(level: Level, findings: impl IntoIterator<Item = &'f Finding>) -> usize {
    findings.into_iter().filter(|finding| finding.level == level).count()
}

fn level_word(level: Level) -> &'static str {
    match level {
        Level::Error => "error",
        Level::Warning => "warning",
        Level::Info | Level::Debug => "note",
    }
}

/// Returns a line with the pairs of a finding; nothing for one that is about the site or a vendor.
fn pairs_line(found: &LintFinding) -> String {
    if found.pairs.is_empty() {
        return String::new();
    }
    let name = |pair: &Pair| match (&pair.vendor, &pair.framework) {
        (Some(vendor), Some(framework)) if pair.training => {
            format!("{}:{framework} with {vendor} (training)", pair.case)
        }
        (Some(vendor), Some(framework)) => format!("{}:{framework} with {vendor}", pair.case),
        _ => format!("{} without a vendor", case_name(pair)),
    };
    let mut names: Vec<String> = found.pairs.iter().take(PAIRS_NAMED).map(name).collect();
    let more = found.pairs.len().saturating_sub(PAIRS_NAMED);
    names.extend((more > 0).then(|| format!("{more} more (--json names all)")));
    format!("  in: {}\n", names.join(", "))
}

/// Version of the schema of the JSON.
const SCHEMA: u32 = 1;

/// The JSON of `flagperf lint`.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct LintJson<'r> {
    /// Version of the schema.
    schema: u32,
    /// The checked pairs.
    pairs: Vec<PairJson<'r>>,
    /// The different findings, the gravest first.
    findings: Vec<FindingJson<'r>>,
}

/// A checked pair.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct PairJson<'r> {
    #[serde(flatten)]
    pair: &'r Pair,
    /// The number of its errors.
    errors: usize,
    /// The number of its warnings.
    warnings: usize,
    /// The number of its notes.
    notes: usize,
}

/// A finding with the pairs that have it.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct FindingJson<'r> {
    /// How grave it is.
    #[cfg_attr(test, schemars(extend("enum" = ["error", "warning", "note"])))]
    level: &'static str,
    /// Its place as text, such as `configs/resnet50/configurations.yaml:9`.
    origin: String,
    /// The file, relative to the checkout if it lies in it; null if the finding is about no file.
    file: Option<&'r str>,
    /// Line, from 1; null for the whole file.
    line: Option<usize>,
    /// Column, from 1; null if unknown.
    column: Option<usize>,
    /// What is wrong.
    message: &'r str,
    /// What to do about it; may be empty.
    hint: &'r str,
    /// The pairs; empty for a finding about the site or a vendor.
    pairs: &'r [Pair],
}

/// Formats the report as one JSON object: `pairs` with the numbers of their findings, and `findings`.
pub(super) fn json_text(report: &LintReport) -> anyhow::Result<String> {
    let pairs = report.pairs.iter().map(|(pair, findings)| {
        let number = |level: Level| number_of(level, findings);
        let (errors, warnings, notes) = (number(Level::Error), number(Level::Warning), number(Level::Info));
        PairJson { pair, errors, warnings, notes }
    });
    let findings = report.findings.iter().map(|LintFinding { finding, pairs }| {
        let Finding { level, origin, message, hint, .. } = finding;
        let (file, line, column) = match origin {
            Origin::File { file, line, column } | Origin::Script { file, line, column } => {
                (Some(&**file), *line, *column)
            }
            _ => (None, 0, 0),
        };
        let place = |number: usize| (number > 0).then_some(number);
        let (line, column) = (place(line), place(column));
        FindingJson { level: level_word(*level), origin: origin.to_string(), file, line, column, message, hint, pairs }
    });
    let json = LintJson { schema: SCHEMA, pairs: pairs.collect(), findings: findings.collect() };
    Ok(format!("{}\n", escape_json(&serde_json::to_string_pretty(&json)?)))
}

#[cfg(test)]
mod tests {
    use schemars::generate::SchemaSettings;

    use super::*;
    use flagperf_config::fixture::check_schema;

    #[test]
    fn the_schema_of_lint_is_current() {
        let generator = SchemaSettings::draft07().for_serialize().into_generator();
        let mut schema = generator.into_root_schema_for::<LintJson<'_>>().to_value();
        schema["title"] = "the JSON of `flagperf lint`".into();
        schema["properties"]["schema"]["const"] = SCHEMA.into();
        check_schema("lint", &schema);
    }
}
