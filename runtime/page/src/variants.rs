//! A case with several values of a setting, or with its switches off and on, as figures.

use flagperf_comparison::{Ablation, Effect, RatioInterval, StoredVariants, Sweep, SwitchEffects};
use flagperf_config::display_value;
use flagperf_core::units::SamplesPerSecond;
use flagperf_report::{digits, rate};

use super::chart::{Chart, Part};
use super::entry::CheckedResult;
use super::figures::{Figure, head, legend, whole_number};
use super::rate_figure::{power_of_two, standalone};
use super::result::text;
use super::words::Language;

/// The share of the largest throughput above it.
const MARGIN: f64 = 1.05;

/// An effect of a switch, with its name.
type NamedEffect = (&'static str, fn(&SwitchEffects) -> &Effect);

const EFFECTS: [NamedEffect; 3] = [
    ("alone", |effects| &effects.alone),
    ("added", |effects| &effects.added),
    ("left out", |effects| &effects.left_out),
];

/// Returns the figures of stored results that are a sweep or an ablation.
pub(super) fn variant_figures(results: &[CheckedResult], language: Language) -> Vec<Figure> {
    let sound = results.iter().filter(|(_, check)| !check.is_wrong());
    let found = StoredVariants::of(sound.map(|(result, _)| (result.path.clone(), &result.record)));
    let figures = found.iter().map(|found| match found {
        StoredVariants::Sweep(sweep) => sweep_figure(sweep, language),
        StoredVariants::Ablation(ablation) => ablation_figure(ablation, language),
    });
    figures.collect()
}

/// Returns the figure of a sweep as HTML, for a page that has a style of its own.
pub fn sweep_html(sweep: &Sweep) -> String {
    standalone(&sweep_figure(sweep, Language::English))
}

/// Returns the figure of an ablation as HTML, for a page that has a style of its own.
pub fn ablation_html(ablation: &Ablation) -> String {
    standalone(&ablation_figure(ablation, Language::English))
}

fn sweep_figure(sweep: &Sweep, language: Language) -> Figure {
    let numbers: Option<Vec<f64>> = sweep.points.iter().map(|point| point.value.as_f64()).collect();
    let is_power = |number: &f64| *number >= 1.0 && number.log2().fract() == 0.0;
    // Values that are no numbers have their places in the table.
    let (places, x_label): (Vec<f64>, fn(f64) -> String) = match numbers {
        Some(numbers) if numbers.iter().all(is_power) => (numbers.into_iter().map(f64::log2).collect(), power_of_two),
        Some(numbers) => (numbers, digits),
        None => ((1..=sweep.points.len()).map(|place| place as f64).collect(), whole_number),
    };
    let figures = || sweep.points.iter().map(|point| &point.figures);
    let core: Vec<Option<f64>> = figures().map(|figures| figures.core_samples_per_s).collect();
    let whole: Vec<Option<f64>> = figures().map(|figures| figures.whole_samples_per_s).collect();
    let line = |speeds: &[Option<f64>], colour| {
        let mut points: Vec<(f64, f64)> =
            places.iter().zip(speeds).filter_map(|(place, speed)| Some((*place, (*speed)?))).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        [Part::Line(points.clone(), colour), Part::Dots(points, colour)]
    };
    let knee = sweep.knee.and_then(|knee| Some((places[knee], core[knee]?)));
    let least = places.iter().copied().fold(f64::INFINITY, f64::min);
    let most = places.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let highest = core.iter().chain(&whole).flatten().copied().fold(0.0, f64::max);
    let chart = Chart {
        x: least..most,
        y: 0.0..MARGIN * highest,
        x_label,
        y_label: |speed| rate(SamplesPerSecond(speed)),
        parts: line(&core, 0)
            .into_iter()
            .chain(line(&whole, 1))
            .chain(knee.map(|knee| Part::Dots(vec![knee], 2)))
            .collect(),
    };
    let speed = |speed: Option<f64>| speed.map_or_else(String::new, |speed| rate(SamplesPerSecond(speed)));
    let rows = sweep.points.iter().enumerate().map(|(index, point)| {
        let by_best = match sweep.best == Some(index) {
            true => language.word("best").to_owned(),
            false => known_change(point.by_best.core.as_ref(), language),
        };
        let knee = if sweep.knee == Some(index) { language.word("knee") } else { "" };
        vec![
            (index + 1).to_string(),
            text(&display_value(&point.value)),
            point.figures.results.len().to_string(),
            speed(point.figures.core_samples_per_s),
            speed(point.figures.whole_samples_per_s),
            by_best,
            knee.to_owned(),
        ]
    });
    let names = ["core", "whole", "knee"].map(|name| language.word(name).to_owned());
    Figure {
        title: language.sentence("{}: samples/s by {}", &[&text(&sweep.case), &text(&sweep.key)]),
        description: language.word("The geometric mean of the results with each value; values that are not numbers have their number in the table. The knee is the smallest value with at least 95 % of the highest throughput (core).").to_owned(),
        elements: chart.elements(),
        legend: legend(names.iter().take(if knee.is_some() { 3 } else { 2 })),
        note: None,
        head: head(["number", "value", "results", "core", "whole", "change by the best, in percent", "knee"], language),
        rows: rows.collect(),
    }
}

fn ablation_figure(ablation: &Ablation, language: Language) -> Figure {
    let lines = ablation.switches.iter().enumerate().flat_map(|(row, effects)| {
        EFFECTS.iter().enumerate().filter_map(move |(colour, (_, effect))| {
            let RatioInterval { ratio, low, high, .. } = effect(effects).core?;
            // The first switch is at the top; those of a switch are one below the other.
            let place = -(row as f64) - 0.25 * (colour as f64 - 1.0);
            let percent = |ratio: f64| 100.0 * (ratio - 1.0);
            let interval = Part::Line(vec![(percent(low), place), (percent(high), place)], colour);
            Some((interval, Part::Dots(vec![(percent(ratio), place)], colour)))
        })
    });
    let lines: Vec<(Part, Part)> = lines.collect();
    let ends = lines.iter().filter_map(|(interval, _)| match interval {
        Part::Line(points, _) => Some(points.iter().map(|(percent, _)| *percent)),
        _ => None,
    });
    let (least, most) = ends.flatten().fold((0f64, 0f64), |(least, most), end| (least.min(end), most.max(end)));
    let rows = ablation.switches.len() as f64;
    let zero = Part::Line(vec![(0.0, 0.5 - rows), (0.0, 0.5)], EFFECTS.len());
    let chart = Chart {
        x: least..most,
        y: 0.5 - rows..0.5,
        x_label: |percent| format!("{percent:+.0} %"),
        y_label: |place| whole_number(1.0 - place),
        parts: std::iter::once(zero).chain(lines.into_iter().flat_map(|(interval, dot)| [interval, dot])).collect(),
    };
    let names = EFFECTS.map(|(name, _)| language.word(name).to_owned());
    let cells = |effect: &Effect| [&effect.core, &effect.whole].map(|ratio| known_change(ratio.as_ref(), language));
    let rows = ablation.switches.iter().enumerate().map(|(index, effects)| {
        let SwitchEffects { switch, alone, added, total, left_out } = effects;
        let settings = |is_on| switch.settings(is_on).collect::<Vec<_>>().join(" ");
        let set = text(&format!("{} → {}", settings(false), settings(true)));
        let cells = [alone, added, total, left_out].into_iter().flat_map(cells);
        [(index + 1).to_string(), text(&switch.name), set].into_iter().chain(cells).collect()
    });
    Figure {
        title: language.sentence("{}: change of samples/s by each switch, in percent", &[&text(&ablation.case)]),
        description: language.word("The change of the throughput (core) with its 95 % confidence interval, as of results that were measured at different times; the number of a switch is that of its row in the table. Alone: by all off; added: by those before it; left out: all others on, by all on.").to_owned(),
        elements: chart.elements(),
        legend: legend(names.iter()),
        note: None,
        head: head(
            ["number", "switch", "settings", "alone", "(whole)", "added", "(whole)", "in total", "(whole)", "left out", "(whole)"],
            language,
        ),
        rows: rows.collect(),
    }
}

fn known_change(ratio: Option<&RatioInterval>, language: Language) -> String {
    ratio.map_or_else(String::new, |ratio| change_text(ratio, language))
}

/// Returns the change that a ratio is, in percent with its interval.
pub fn change_text(RatioInterval { ratio, low, high, .. }: &RatioInterval, language: Language) -> String {
    let [change, low, high] = [ratio, low, high].map(|ratio| format!("{:+.1}", (ratio - 1.0) * 100.0));
    format!("{change} ({})", language.sentence("{} to {}", &[&low, &high]))
}

#[cfg(test)]
mod tests {
    use flagperf_comparison::{Side, Variant};
    use flagperf_config::Switch;
    use flagperf_result::testing;
    use indexmap::IndexMap;
    use serde_json::{Value, json};

    use super::super::result::{Check, ReadResult};
    use super::*;

    fn results(settings: impl Fn(usize) -> Value) -> Vec<CheckedResult> {
        let result = |index: usize| {
            let mut record = testing::record();
            record.run = format!("run{index}");
            record.started = format!("2026-01-01T00:{index:02}:00Z");
            let speed = 100.0 + 50.0 * (index % 2) as f64 + index as f64;
            record.phases[0].measured[0].throughput_core_samples_per_s = Some(SamplesPerSecond(speed));
            for (key, value) in settings(index).as_object().expect("settings") {
                let setting = flagperf_result::Setting { value: value.clone(), origin: "file:1".into() };
                record.settings.insert(key.clone(), setting);
            }
            (ReadResult { path: format!("run{index}/record.json").into(), record, digest: None }, Check::TooLarge)
        };
        (0..4).map(result).collect()
    }

    #[test]
    fn stored_results_are_drawn_as_the_sweep_that_they_are() {
        let found = results(|index| json!({"prefetch": 1 << (index % 2), "note": "<b>"}));
        for language in [Language::English, Language::Chinese] {
            let figures = variant_figures(&found, language);
            let [figure] = &figures[..] else { panic!("one figure") };
            assert!(figure.title.contains("prefetch"), "{}", figure.title);
            assert_eq!(figure.elements.matches("<circle").count(), 5, "two values, core and whole, and the knee");
            assert_eq!(figure.rows[0][..4], ["1", "1", "2", "101"]);
            assert!(figure.rows[0][5].starts_with('-') && figure.rows[1][6] == language.word("knee"), "{figure:?}");
        }
        let words = results(|index| json!({"engine": if index % 2 == 0 { "a" } else { "<b>" }}));
        let figure = &variant_figures(&words, Language::English)[0];
        assert!(figure.elements.contains("\n2\n") && !figure.elements.contains("<b>"), "{}", figure.elements);
        assert_eq!(variant_figures(&found[..1], Language::English).len(), 0);
    }

    #[test]
    fn stored_results_are_drawn_as_the_ablation_that_they_are() {
        let switches = json!([{"name": "amp", "off": {"fp16": false}, "on": {"fp16": true}}]);
        let found = results(|index| json!({"fp16": index % 2 == 1, "switches": switches.clone()}));
        let figure = &variant_figures(&found, Language::English)[0];
        assert!(figure.title.contains("each switch"), "{}", figure.title);
        assert_eq!(figure.rows[0][..3], ["1", "amp", "fp16=false → fp16=true"]);
        assert!(figure.rows[0][3].starts_with("+50.") && figure.elements.contains("<circle"), "{figure:?}");
    }

    #[test]
    fn a_figure_without_measurements_is_drawn() {
        let switch = Switch { name: "a".to_owned(), off: IndexMap::new(), on: IndexMap::new() };
        let ablation = ablation_html(&Ablation::new("tiny".to_owned(), &[switch], &[], true));
        assert!(ablation.contains("<svg"), "{ablation}");
        let failed =
            Variant { side: Side { name: String::new(), results: Vec::new() }, failure: Some("no memory".to_owned()) };
        let sweep = Sweep::new("tiny".to_owned(), "key".to_owned(), &[(json!("<i>"), failed)], true);
        let html = sweep_html(&sweep);
        assert!(html.contains("<svg") && !html.contains("<i>"), "{html}");
    }
}
