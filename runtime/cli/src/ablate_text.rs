//! What the switches of a case change, as text.

use flagperf_comparison::{Ablation, Effect, RatioInterval, VariantFigures};

use flagperf_core::text::one_line;
use flagperf_page::{Language, change_text};
use flagperf_report::{headed_table, name_value_table, wrap};

/// Chooses the throughput that a table is about.
type Chosen = fn(&Effect) -> Option<RatioInterval>;

/// The throughputs that are shown, with their names.
const FIGURES: [(&str, Chosen); 2] = [("core", |effect| effect.core), ("whole", |effect| effect.whole)];

/// Describes the effects of all switches.
pub(super) fn ablation_text(ablation: &Ablation, columns: u16) -> String {
    let mut rows = vec![
        ("case".to_owned(), ablation.case.clone()),
        ("combinations".to_owned(), ablation.combinations.len().to_string()),
        ("rounds".to_owned(), ablation.rounds.to_string()),
    ];
    let all = ablation.switches.len();
    let ends = ablation.combinations.iter().filter(|figures| figures.on.is_empty() || figures.on.len() == all);
    rows.extend(ends.map(|ends| (combination_name(&ends.on, all), throughput(&ends.figures))));
    for effects in &ablation.switches {
        let settings = |is_on| effects.switch.settings(is_on).collect::<Vec<_>>().join(" ");
        rows.push((
            effects.switch.name.clone(),
            one_line(&format!("{} → {}", settings(false), settings(true))).into_owned(),
        ));
    }
    rows.extend(
        ablation.unavailable.iter().map(|(name, reason)| (name.clone(), format!("cannot be used here: {reason}"))),
    );
    let mut text = name_value_table(rows, columns);
    for (name, chosen) in FIGURES {
        let head = ["switch", "alone", "added", "in total", "left out"].map(str::to_owned);
        let rows = ablation.switches.iter().map(|effects| {
            let cells = [&effects.alone, &effects.added, &effects.total, &effects.left_out];
            let [alone, added, total, left_out] = cells.map(|effect| cell(effect, chosen));
            [effects.switch.name.clone(), alone, added, total, left_out]
        });
        let title = format!("Change of throughput ({name}) in percent, with 95 % confidence intervals:");
        text += &format!(
            "\n{}\n{}",
            wrap(&title, columns.into()),
            headed_table(std::iter::once(head).chain(rows).collect(), columns)
        );
    }
    for line in interval_note(ablation.rounds).into_iter().chain(notes(ablation)) {
        text += &format!("\n{}\n", wrap(&one_line(&line), columns.into()));
    }
    text
}

/// Names a combination of `all` switches by those that are on.
pub(super) fn combination_name(on: &[String], all: usize) -> String {
    match on.len() {
        0 => "all off".to_owned(),
        count if count == all => "all on".to_owned(),
        _ => on.join(" + "),
    }
}

fn cell(effect: &Effect, chosen: Chosen) -> String {
    chosen(effect).as_ref().map_or_else(|| "unknown".to_owned(), |ratio| change_text(ratio, Language::English))
}

fn throughput(figures: &VariantFigures) -> String {
    match (figures.core_samples_per_s, figures.whole_samples_per_s) {
        (Some(core), Some(whole)) => format!("core {core:.2}, whole {whole:.2} samples/s"),
        _ => "no figures".to_owned(),
    }
}

/// Returns why no interval is known after so few complete rounds.
pub(super) fn interval_note(rounds: usize) -> Option<String> {
    (rounds < 2).then(|| {
        "An interval needs two complete rounds: what is unknown here was not measured often enough.".to_owned()
    })
}

fn notes(ablation: &Ablation) -> Vec<String> {
    let all = ablation.switches.len();
    let variants =
        ablation.combinations.iter().map(|combination| (combination_name(&combination.on, all), &combination.figures));
    variant_notes(&variants.collect::<Vec<_>>(), "all off")
}

/// Returns what a table does not show of variants with their names: what failed, and whether the outputs agree with those of `first`.
pub(super) fn variant_notes(variants: &[(String, &VariantFigures)], first: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, figures) in variants {
        match (&figures.failure, &figures.not_compared) {
            (Some(reason), _) => lines.push(format!("{name} failed: {reason}")),
            (None, Some(reason)) => lines.push(format!("outputs of {name}: not compared: {reason}")),
            (None, None) => {}
        }
        let differ = |reason: &String| format!("outputs of {name} differ from those of {first}: {reason}");
        lines.extend(figures.disagreement.iter().map(differ));
    }
    let errors = variants
        .iter()
        .flat_map(|(name, figures)| figures.outputs.values().map(move |output| (output.relative_l2, name)));
    if let Some((error, name)) = errors.max_by(|a, b| a.0.total_cmp(&b.0)) {
        let compared = variants.iter().filter(|(_, figures)| !figures.outputs.is_empty()).count();
        let agree = variants
            .iter()
            .filter(|(_, figures)| !figures.outputs.is_empty() && figures.disagreement.is_empty())
            .count();
        lines.push(format!(
            "outputs of {agree} of {compared} agree with those of {first}; the largest relative L2 error is {error:.1e} ({name})"
        ));
    }
    lines
}
