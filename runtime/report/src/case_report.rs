//! The report of a case: a summary or every detail of its record, then the verdict, the headline figures and the path.

use std::path::Path;

use console::{Style, measure_text_width};

use super::conclusion::headline_rows;
use super::rows::sections;
use super::table::{NAME_COLUMNS, Screen, name_value_table};
use super::text::{count, display_text};
use flagperf_core::text::one_line;
use flagperf_result::{Record, Status, Validity, ValidityCheck};

/// Largest number of warnings in a report; the record contains all of them.
const WARNINGS_SHOWN: usize = 50;
/// Largest number of warnings in a summary.
const WARNINGS_SUMMARISED: usize = 3;
/// Largest number of reasons in a summary why a result is not an official one.
const REASONS_SUMMARISED: usize = 3;
/// Lines of text that are shown of a warning in a summary.
const WARNING_LINES: usize = 2;
/// Largest number of lines of a worker's standard error in a summary.
const STDERR_SUMMARISED: usize = 5;

/// How much of a record a report contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// FlagPerf's rows, short warnings, the verdict and the headline figures: about 20 lines.
    Summary,
    /// Every section, and every warning in full.
    Details,
}

/// Where the result of a case is.
#[derive(Clone, Copy, Debug, Default)]
pub struct SavedResult<'a> {
    /// Path of the record; `None` when it is not on disk.
    pub path: Option<&'a Path>,
    /// Digest of the manifest; `None` when there is no manifest.
    pub digest: Option<&'a str>,
    /// The host and the device, if the case has several records.
    pub place: Option<&'a str>,
    /// Whether the run required a valid result.
    pub is_official_run: bool,
}

/// Formats the report of a case. It ends with `charts`, which are lines that fit the screen, the headline figures, the verdict, the digest
/// and the path of the record.
pub fn case_report(record: &Record, saved: SavedResult<'_>, extent: Extent, charts: &str, screen: Screen) -> String {
    let paint = |style: Style, text: &str| style.force_styling(screen.colour).apply_to(display_text(text)).to_string();
    let bold = Style::new().bold();
    let mut sections = sections(record);
    if extent == Extent::Summary {
        sections.truncate(1);
    }
    let key = saved.place.map_or_else(|| record.key(), |place| format!("{} on {place}", record.key()));
    let mut text = format!("{}\n", paint(bold.clone(), &key));
    for section in sections {
        if !section.title.is_empty() {
            text += &format!("{}\n", paint(bold.clone(), &section.title));
        }
        text += &name_value_table(section.rows, screen.columns);
    }
    let warnings = match extent {
        Extent::Summary => short_warnings(&record.warnings, screen.columns),
        Extent::Details => warnings(&record.warnings),
    };
    text += &rows_text(warnings, screen.columns);
    if !charts.is_empty() {
        text += &format!("\n{charts}");
    }
    let style = match record.status {
        Status::Ok => Style::new().green(),
        Status::Failed => Style::new().red().bold(),
        Status::Interrupted => Style::new().yellow(),
    };
    let word = outcome_word(record.status, record.validity.verdict, saved.is_official_run);
    let style = if word == verdict_word(record.status) { style } else { Style::new().red().bold() };
    text += &format!("\n{}  {}\n", paint(style, word), paint(bold, &key));
    text += &rows_text(headline_rows(record), screen.columns);
    let failures = failures(record, extent);
    let verdict = verdict_text(&record.validity, !failures.is_empty(), extent);
    text += &rows_text(vec![row("verdict", &verdict)], screen.columns);
    text += &rows_text(failures, screen.columns);
    let digest = saved.digest.map(|digest| format!(" digest  {}\n", display_text(digest)));
    text + digest.unwrap_or_default().as_str() + record_row(saved.path, screen.columns).as_str()
}

/// Returns the verdict on the result with its reasons, in a summary the first of them, and the notes. Failures, which are the reasons why a
/// result is invalid, are in rows of their own.
fn verdict_text(validity: &ValidityCheck, has_failures: bool, extent: Extent) -> String {
    let name = validity.verdict.name();
    let notes: String = validity.notes.iter().map(|note| format!("; note: {}", one_line(note))).collect();
    if validity.verdict == Validity::Invalid && has_failures || validity.reasons.is_empty() {
        return format!("{name}{notes}");
    }
    let shown = if extent == Extent::Summary { REASONS_SUMMARISED } else { usize::MAX };
    let shown = &validity.reasons[..validity.reasons.len().min(shown)];
    let more = match validity.reasons.len() - shown.len() {
        0 => String::new(),
        more => format!("; and {more} more: see the record or use --details"),
    };
    format!("{name}: {}{more}{notes}", one_line(&shown.join("; ")))
}

/// Returns the row with the path of the record, which is not wrapped, so that it can be copied: where it does not fit
/// beside its name, it has a line of its own.
fn record_row(path: Option<&Path>, columns: u16) -> String {
    let path = path.map_or_else(|| "not written".to_owned(), |path| path.display().to_string());
    let line = format!(" record  {}", display_text(&path));
    if measure_text_width(&line) <= usize::from(columns) {
        return line + "\n";
    }
    format!(" record\n{}\n", display_text(&path))
}

/// Returns the word for the verdict on a case.
pub const fn verdict_word(status: Status) -> &'static str {
    match status {
        Status::Ok => "ok",
        Status::Failed => "FAILED",
        Status::Interrupted => "interrupted",
    }
}

/// Returns the word for the outcome of a case. A run that required a valid result did not succeed with another one.
pub(super) fn outcome_word(status: Status, validity: Validity, is_official_run: bool) -> &'static str {
    match status {
        Status::Ok if is_official_run && validity != Validity::Valid => validity.name(),
        _ => verdict_word(status),
    }
}

/// Formats rows; returns an empty string for no rows.
fn rows_text(rows: Vec<(String, String)>, columns: u16) -> String {
    if rows.is_empty() { String::new() } else { name_value_table(rows, columns) }
}

fn row(name: &str, text: &str) -> (String, String) {
    (name.to_owned(), text.to_owned())
}

/// Returns the rows for the warnings, in full.
fn warnings(warnings: &[String]) -> Vec<(String, String)> {
    let mut rows: Vec<_> = warnings.iter().take(WARNINGS_SHOWN).map(|warning| row("warning", warning)).collect();
    if let Some(more @ 1..) = warnings.len().checked_sub(WARNINGS_SHOWN) {
        let text = match more {
            1 => "1 more warning is in the record".to_owned(),
            more => format!("{} more warnings are in the record", count(more as u64)),
        };
        rows.push(row("", &text));
    }
    rows
}

/// Returns each of the first warnings, wrapped to a few lines, and a line that says where the rest is.
fn short_warnings(warnings: &[String], columns: u16) -> Vec<(String, String)> {
    let width = usize::from(columns.saturating_sub(NAME_COLUMNS + 2));
    // Words do not fill a line, so less than the width of all lines fits.
    let width = WARNING_LINES * width - width / 5;
    let warnings: Vec<String> = warnings.iter().map(|warning| join_lines(warning)).collect();
    let shown: Vec<_> = warnings.iter().take(WARNINGS_SUMMARISED).map(|warning| shorten(warning, width)).collect();
    let is_complete = shown.iter().zip(&warnings).all(|(short, whole)| short == whole) && shown.len() == warnings.len();
    let mut rows: Vec<_> = shown.iter().map(|warning| row("warning", warning)).collect();
    if !is_complete {
        let all =
            if warnings.len() == 1 { "the warning".to_owned() } else { format!("all {} warnings", warnings.len()) };
        rows.push(row("", &format!("{all}: see the record or use --details")));
    }
    rows
}

/// Joins the lines of a text by blanks.
fn join_lines(text: &str) -> String {
    text.lines().map(str::trim).collect::<Vec<_>>().join(" ")
}

/// Cuts `text` between words to at most `width` columns, without line breaks; a cut ends with ` ...`. The first word is whole in any
/// case.
fn shorten(text: &str, width: usize) -> String {
    const CUT: &str = " ...";
    let text = one_line(&display_text(text)).into_owned();
    if measure_text_width(&text) <= width {
        return text;
    }
    let fits = |end: usize| measure_text_width(&text[..end]) + CUT.len() <= width;
    let ends: Vec<usize> = text.match_indices(' ').map(|(end, _)| end).collect();
    let end = ends.iter().rfind(|end| fits(**end)).or(ends.first());
    end.map_or_else(|| text.clone(), |end| format!("{}{CUT}", &text[..*end]))
}

/// Returns the rows for the failures of a record. A summary has only the last lines of a worker's standard error.
fn failures(record: &Record, extent: Extent) -> Vec<(String, String)> {
    let mut rows = Vec::new();
    for failure in &record.failures {
        let step = failure.step.map(|step| format!("{}: ", step.name())).unwrap_or_default();
        rows.push(row("failed", &format!("{step}{}", failure.reason)));
        rows.extend((!failure.hint.is_empty()).then(|| row("  hint", &failure.hint)));
        let left_out = match extent {
            Extent::Summary => failure.stderr.len().saturating_sub(STDERR_SUMMARISED),
            Extent::Details => 0,
        };
        if left_out > 0 {
            rows.push(row("  worker", &format!("({left_out} more lines: see the record or use --details)")));
        }
        rows.extend(failure.stderr[left_out..].iter().map(|line| row("  worker", line)));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagperf_core::event::EngineFacts;
    use flagperf_core::measure::Measurement;
    use flagperf_core::metric::{Agreement, OutputAgreement};
    use flagperf_core::step::Step;
    use flagperf_result::{FailureRecord, testing};

    fn report(record: &Record, extent: Extent, columns: u16) -> String {
        let path = Some(Path::new("r.json"));
        let saved = SavedResult { path, digest: Some("sha256:ab"), ..SavedResult::default() };
        case_report(record, saved, extent, "", Screen { columns, colour: false })
    }

    #[test]
    fn no_line_is_wider_than_the_screen() {
        let mut record = testing::record();
        record.warnings.push("something that is long enough to be more than one line on a narrow screen ".repeat(3));
        for columns in [60, 80, 200] {
            for extent in [Extent::Summary, Extent::Details] {
                let text = report(&record, extent, columns);
                let widest = text.lines().map(console::measure_text_width).max().unwrap();
                assert!(widest <= usize::from(columns), "{widest} at {columns}:\n{text}");
            }
        }
    }

    #[test]
    fn a_warning_is_cut_between_words() {
        let path = "datasets/drawn/generated/model.safetensors";
        assert_eq!(shorten(&format!("the file `{path}` has no class list"), 60), format!("the file `{path}` ..."));
        assert_eq!(shorten(&format!("the file `{path}` has no class list"), 30), "the file ...");
        assert_eq!(shorten(path, 10), path, "a word is not cut");
    }

    #[test]
    fn memory_that_no_monitor_reported_has_its_reason() {
        let mut record = testing::record();
        record.finish_info.vendor_usage = None;
        let unavailable = Some("`chip-smi` exited with status 3: `no driver`".to_owned());
        let source = flagperf_sampling::SourceRecord { unavailable, ..Default::default() };
        let sources = [(flagperf_sampling::DEVICE_SOURCE.to_owned(), source)].into_iter().collect();
        record.monitors = Some(flagperf_sampling::MonitorRecord { sources, ..Default::default() });
        let text = report(&record, Extent::Summary, 200);
        assert!(
            text.contains("vendor_usage(GiB)        unknown: `chip-smi` exited with status 3: `no driver`\n"),
            "{text}"
        );
    }

    #[test]
    fn a_result_that_is_not_valid_is_not_ok_where_it_had_to_be() {
        let record = testing::record();
        let text = |is_official_run| {
            let saved = SavedResult { is_official_run, ..SavedResult::default() };
            case_report(&record, saved, Extent::Summary, "", Screen { columns: 80, colour: false })
        };
        assert!(text(false).contains("\nok  resnet50:interpreter\n"));
        assert!(text(true).contains("\nunofficial  resnet50:interpreter\n"));
    }

    #[test]
    fn a_summary_has_some_reasons_and_says_where_the_others_are() {
        let mut record = testing::record();
        record.validity.reasons = ["a", "b", "c", "d", "e"].map(str::to_owned).to_vec();
        let summary = report(&record, Extent::Summary, 200);
        assert!(summary.contains("unofficial: a; b; c; and 2 more: see the record or use --details\n"), "{summary}");
        assert!(report(&record, Extent::Details, 200).contains("unofficial: a; b; c; d; e\n"));
    }

    #[test]
    fn a_note_follows_the_verdict_and_has_no_control_characters() {
        let mut validity = testing::record().validity;
        validity.notes = vec!["inference: steps were slower\x1b[2J".to_owned()];
        let text = verdict_text(&validity, false, Extent::Summary);
        assert!(
            text.starts_with("unofficial: no accuracy: random weights; note: inference: steps were slower"),
            "{text}"
        );
        validity.reasons.clear();
        assert!(
            !text.contains('\x1b') && verdict_text(&validity, false, Extent::Details).contains("; note: inference")
        );
    }

    #[test]
    fn a_warning_of_two_lines_is_one_line_in_the_summary() {
        let mut record = testing::record();
        record.warnings = vec!["`seeed` is unknown\n  hint: see the table".to_owned()];
        let text = report(&record, Extent::Summary, 200);
        assert!(text.contains(" `seeed` is unknown hint: see the table\n"), "{text}");
        assert!(!text.contains("see the record"), "{text}");
    }

    #[test]
    fn long_texts_are_truncated_and_control_characters_are_escaped() {
        let mut record = testing::record();
        record.warnings = vec![format!("\x1b[2J{}", "x".repeat(1 << 19)); 200];
        record.failures = vec![FailureRecord {
            phase: None,
            step: None,
            reason: "at line 1:\n\tlet x\x07".into(),
            hint: String::new(),
            stderr: vec!["\rprogress".into()],
        }];
        let text = report(&record, Extent::Details, 200);
        assert!(text.len() < 200_000, "{}", text.len());
        assert_eq!(text.matches("... (523292 more bytes)").count(), WARNINGS_SHOWN);
        let end = &text[text.find("150 more").unwrap()..];
        insta::assert_snapshot!(end, @r"
        150 more warnings are in the record

        ok  resnet50:interpreter
         validation               80.0 samples/s core, 64.0 whole
         verdict                  unofficial: no accuracy: random weights
         failed                   at line 1:
                                  \tlet x\u{7}
           worker                 \rprogress
         digest  sha256:ab
         record  r.json
        ");
    }

    #[test]
    fn the_properties_of_an_engine_cannot_begin_another_row() {
        let mut record = testing::record();
        let forged = "1.0\n *MFU                     99.9%\x1b[2J";
        let engine =
            EngineFacts { name: "x".into(), version: forged.into(), device: "a\r\nb".into(), ..Default::default() };
        record.phases[0].engine = Some(engine);
        let text = report(&record, Extent::Details, 200);
        assert!(!text.lines().any(|line| line.contains("99.9%") && !line.contains("x 1.0\\n *MFU")), "{text}");
        assert!(text.contains("99.9%\\u{1b}[2J on a\\r\\nb,"), "{text}");
    }

    #[test]
    fn a_summary_has_few_lines_and_ends_with_the_verdict_the_figures_and_the_record() {
        let mut record = testing::record();
        record.warnings = vec!["a long warning ".repeat(20); 9];
        let text = report(&record, Extent::Summary, 80);
        assert!(text.lines().count() <= 29, "a terminal of 30 rows shows all of it: {text}");
        let end = &text[text.find("warning ").unwrap()..];
        insta::assert_snapshot!(end, @r"
        warning                  a long warning a long warning a long warning a long
                                  warning a long warning a long warning a ...
         warning                  a long warning a long warning a long warning a long
                                  warning a long warning a long warning a ...
         warning                  a long warning a long warning a long warning a long
                                  warning a long warning a long warning a ...
                                  all 9 warnings: see the record or use --details

        ok  resnet50:interpreter
         validation               80.0 samples/s core, 64.0 whole
         verdict                  unofficial: no accuracy: random weights
         digest  sha256:ab
         record  r.json
        ");
        assert!(!text.contains("model, data and hardware"), "{text}");
        assert!(report(&record, Extent::Details, 80).contains("model, data and hardware"));
    }

    #[test]
    fn a_summary_of_a_failure_has_the_reason_and_the_last_lines_of_the_worker() {
        let mut record = testing::record();
        record.status = Status::Failed;
        record.failures = vec![FailureRecord {
            phase: None,
            step: None,
            reason: "it broke".into(),
            hint: "mend it".into(),
            stderr: (1..=20).map(|line| format!("line {line}")).collect(),
        }];
        let text =
            case_report(&record, SavedResult::default(), Extent::Summary, "", Screen { columns: 80, colour: false });
        insta::assert_snapshot!(&text[text.find("FAILED").unwrap()..], @r"
        FAILED  resnet50:interpreter
         validation               80.0 samples/s core, 64.0 whole
         verdict                  unofficial: no accuracy: random weights
         failed                   it broke
           hint                   mend it
           worker                 (15 more lines: see the record or use --details)
           worker                 line 16
           worker                 line 17
           worker                 line 18
           worker                 line 19
           worker                 line 20
         record  not written
        ");
        assert!(report(&record, Extent::Details, 80).contains("line 1\n"));
    }

    #[test]
    fn a_path_that_does_not_fit_beside_its_name_has_a_line_of_its_own() {
        assert_eq!(record_row(Some(Path::new("r.json")), 40), " record  r.json\n");
        let long = "result/".repeat(5) + "record.json";
        assert_eq!(record_row(Some(Path::new(&long)), 50), format!(" record\n{long}\n"));
    }

    #[test]
    fn a_summary_says_why_agreement_was_not_checked() {
        let mut record = testing::record();
        let inference = Measurement { step: Step::Inference, ..record.phases[0].measured[0].clone() };
        record.phases[0].measured.push(inference);
        record.agreement.unknown = Some("the framework computes nothing (engine `null`)".to_owned());
        let figures =
            Agreement { outputs: [("y".to_owned(), OutputAgreement::default())].into(), ..Agreement::default() };
        record.phases[0].phase = flagperf_core::step::Phase::Infer;
        record.phases[0].agreement = Some(figures);
        let text = report(&record, Extent::Details, 200);
        assert!(text.contains("agreement                not checked: the framework computes nothing"), "{text}");
        assert!(!text.contains("relative error"), "figures without meaning are left out: {text}");
    }

    #[test]
    fn without_colour_there_are_no_escape_sequences() {
        let record = testing::record();
        assert!(!report(&record, Extent::Details, 80).contains('\x1b'));
        let screen = Screen { columns: 80, colour: true };
        assert!(case_report(&record, SavedResult::default(), Extent::Details, "", screen).contains('\x1b'));
    }

    #[test]
    fn an_unknown_value_is_replaced_by_the_reason() {
        let text = report(&testing::record(), Extent::Summary, 100);
        for reason in
            ["no accuracy: random weights", "unknown: the device's peak is unknown", "none: `compiler` is null"]
        {
            assert!(text.contains(reason), "{reason} is not in\n{text}");
        }
    }
}
