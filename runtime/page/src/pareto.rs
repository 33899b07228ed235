//! Results that generate text, by the number of prompts at a time: the rows of a table with their notes, and the figure of the page.

use flagperf_comparison::{Pareto, ParetoPoint, ParetoSubject, ParetoTable};
use flagperf_core::units::SamplesPerSecond;
use flagperf_report::{count, digits, duration, rate};

use super::chart::{Chart, Part};
use super::figures::{Figure, head, legend};
use super::result::text;
use super::words::Language;

/// The columns of a table; that of the cost, the last but one, begins with the currency.
const COLUMNS: [&str; 8] =
    ["prompts", "results", "a user", "a device", "first token", "tokens/J", "{} per 1M", "verdict"];
const MEANING: &str = "prompts: how many are answered at the same time; a user: tokens/s of one answer after its first token, on average; a device: output tokens/s of all answers. A star marks the Pareto front: no other row is at least as good in both, and better in one.";
const COST: &str = "The cost is that of output tokens on a device that is paid by the hour and answers prompts all the time, as here: idle time, and what the price does not include, such as the power of the host, is not counted.";
const SERVER: &str = "Which devices are behind the server is not known: its tokens are divided by {} (--server-devices), and its energy is unknown.";
const WHOLE_ANSWERS: &str =
    "The server sent whole answers, so that a user's tokens/s contain the time to the first token.";

const REPEATED: &str = "Results with the same settings and versions are one row: the mean, and in brackets the smallest and the largest value.";
const UNCHECKED: &str = "Not checked, because its files are large (`flagperf verify` checks it): {}";
const UNKNOWN_DEVICES: &str = "The devices of some results are not known and count as one, so that the figures of a device may be better than the truth.";

/// Returns what the results of a table have in common: `smollm2_135m:interpreter: cpu, rten, cpu, fp32, 134,515,008 parameters, 64 + 64
/// tokens`.
pub fn pareto_subject(subject: &ParetoSubject) -> String {
    let ParetoSubject { key, vendor, engine, device, precision, parameters, prompt_tokens, new_tokens, server } =
        subject;
    let device = server.as_ref().map_or(device, |server| &server.url);
    let prompts = prompt_tokens.map_or_else(String::new, |tokens| format!("{tokens} + "));
    let parameters = parameters.map_or_else(String::new, |number| format!("{} parameters, ", count(number)));
    text(&format!("{key}: {vendor}, {engine}, {device}, {precision}, {parameters}{prompts}{new_tokens} tokens"))
}

/// Returns the table of results with its head.
pub fn pareto_rows(table: &ParetoTable, currency: Option<&str>, language: Language) -> Vec<[String; 8]> {
    let cost = |name: &&str| match currency {
        Some(currency) if name.contains("{}") => language.sentence(name, &[&text(currency)]),
        None if name.contains("{}") => String::new(),
        _ => language.word(name).to_owned(),
    };
    let head = COLUMNS.each_ref().map(cost);
    std::iter::once(head).chain(table.points.iter().map(|point| row(point, language))).collect()
}

fn row(point: &ParetoPoint, language: Language) -> [String; 8] {
    let mark = if point.is_on_front { " *" } else { "" };
    [
        format!("{}{mark}", point.concurrency),
        point.paths.len().to_string(),
        mean_speed(point.user_tokens_per_s, point.user_tokens_per_s_range, language),
        mean_speed(point.device_tokens_per_s, point.device_tokens_per_s_range, language),
        point.first_token_p50_s.map_or_else(String::new, duration),
        point.tokens_per_j.map_or_else(|| language.word("unknown").to_owned(), digits),
        point.cost_per_million_tokens.map_or_else(String::new, cost),
        language.word(point.validity.name()).to_owned(),
    ]
}

/// Returns what a reader must know of the figures.
pub fn pareto_notes(found: &Pareto, language: Language) -> Vec<String> {
    let points = || found.tables.iter().flat_map(|table| &table.points);
    let mut notes = vec![language.word(MEANING).to_owned()];
    notes.extend(found.currency.iter().map(|_| language.word(COST).to_owned()));
    for table in &found.tables {
        notes.extend(table.price_source.iter().map(|source| language.sentence("Price: {}", &[&text(source)])));
        let server = table.subject.server.as_ref().and(table.points.first());
        notes.extend(server.map(|point| language.sentence(SERVER, &[&point.devices.to_string()])));
        let of = table.points.iter().find_map(|point| point.energy_of);
        notes.extend(of.map(|of| language.sentence("tokens/J: output tokens per joule, {}", &[language.name(of)])));
    }
    let is_mean = points().any(|point| point.user_tokens_per_s_range.is_some());
    notes.extend(is_mean.then(|| language.word(REPEATED).to_owned()));
    notes.extend(points().any(|point| point.includes_first_token).then(|| language.word(WHOLE_ANSWERS).to_owned()));
    notes.extend(points().any(|point| !point.are_devices_known).then(|| language.word(UNKNOWN_DEVICES).to_owned()));
    let unchecked =
        found.unchecked.iter().map(|path| language.sentence(UNCHECKED, &[&text(&path.display().to_string())]));
    notes.extend(unchecked);
    let mut seen = Vec::new();
    notes.retain(|note| {
        !seen.contains(note) && {
            seen.push(note.clone());
            true
        }
    });
    notes
}

/// Draws the speed of a user against that of a device, each table in a colour of its own with its front as a line. `None` without two results.
pub(super) fn pareto_figure(found: &Pareto, language: Language) -> Option<Figure> {
    let points = || found.tables.iter().flat_map(|table| &table.points);
    points().nth(1)?;
    let top = |speed: fn(&ParetoPoint) -> f64| 1.05 * points().map(speed).fold(0.0, f64::max);
    let [users, devices]: [fn(&ParetoPoint) -> f64; 2] = [
        |point| point.user_tokens_per_s_range.map_or(point.user_tokens_per_s, |[_, largest]| largest),
        |point| point.device_tokens_per_s_range.map_or(point.device_tokens_per_s, |[_, largest]| largest),
    ];
    let place = |point: &ParetoPoint| (point.user_tokens_per_s, point.device_tokens_per_s);
    // From the smallest to the largest of several results, in both directions.
    let ranges = |point: &ParetoPoint| {
        let ((user, device), none) = (place(point), Vec::new);
        let of_user =
            point.user_tokens_per_s_range.map_or_else(none, |range| range.map(|user| (user, device)).to_vec());
        let of_device =
            point.device_tokens_per_s_range.map_or_else(none, |range| range.map(|device| (user, device)).to_vec());
        [of_user, of_device]
    };
    let parts = found.tables.iter().enumerate().flat_map(|(colour, table)| {
        let mut front: Vec<(f64, f64)> = table.points.iter().filter(|point| point.is_on_front).map(place).collect();
        front.sort_by(|a, b| a.0.total_cmp(&b.0));
        let ranges = table.points.iter().flat_map(ranges).filter(|range| !range.is_empty());
        let ranges = ranges.map(move |range| Part::Line(range, colour));
        let dots = Part::Dots(table.points.iter().map(place).collect(), colour);
        [Part::Line(front, colour), dots].into_iter().chain(ranges)
    });
    let chart =
        Chart { x: 0.0..top(users), y: 0.0..top(devices), x_label: speed, y_label: speed, parts: parts.collect() };
    let names: Vec<String> = found.tables.iter().map(|table| pareto_subject(&table.subject)).collect();
    let rows = found.tables.iter().zip(&names).flat_map(|(table, name)| {
        let rows = pareto_rows(table, found.currency.as_deref(), language);
        rows.into_iter().skip(1).map(|row| std::iter::once(name.clone()).chain(row).collect())
    });
    let columns = pareto_rows(&found.tables[0], found.currency.as_deref(), language).swap_remove(0);
    Some(Figure {
        title: language.word("Output tokens/s of a device over tokens/s of a user").to_owned(),
        description: language.word("Each dot is a row of the table; the line joins those of the Pareto front, and a cross is from the smallest to the largest of several results.").to_owned(),
        elements: chart.elements(),
        legend: legend(names.iter()),
        note: Some(pareto_notes(found, language).join(" ")),
        head: head(["case"], language).into_iter().chain(columns).collect(),
        rows: rows.collect(),
    })
}

/// Formats a cost with three significant digits, however small it is.
fn cost(cost: f64) -> String {
    let decimals = (2.0 - cost.log10().floor()).clamp(0.0, 12.0) as usize;
    format!("{cost:.decimals$}")
}

/// `75.0`, or `75.0 (50.0 to 100)` of several results.
fn mean_speed(mean: f64, range: Option<[f64; 2]>, language: Language) -> String {
    let range = range.map(|range| range.map(speed));
    let range = range.map(|[low, high]| format!(" ({})", language.sentence("{} to {}", &[&low, &high])));
    format!("{}{}", speed(mean), range.unwrap_or_default())
}

fn speed(tokens_per_s: f64) -> String {
    rate(SamplesPerSecond(tokens_per_s))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use flagperf_core::event::ServerFacts;
    use flagperf_core::units::Seconds;
    use flagperf_result::Validity;

    use super::super::page::page;
    use super::super::roofline::Roofline;
    use super::*;

    fn point(concurrency: u64, user: f64, device: f64, is_on_front: bool) -> ParetoPoint {
        ParetoPoint {
            paths: vec![PathBuf::from("r")],
            concurrency,
            user_tokens_per_s: user,
            user_tokens_per_s_range: None,
            includes_first_token: false,
            device_tokens_per_s: device,
            device_tokens_per_s_range: None,
            devices: 1,
            are_devices_known: true,
            first_token_p50_s: Some(Seconds(0.25)),
            tokens_per_j: None,
            energy_of: None,
            cost_per_million_tokens: Some(0.5),
            is_on_front,
            validity: Validity::Unofficial,
        }
    }

    fn found(url: &str) -> Pareto {
        let subject = ParetoSubject {
            key: "smollm2_135m:interpreter".into(),
            vendor: "cpu".into(),
            engine: "openai".into(),
            device: "server".into(),
            precision: "fp32".into(),
            parameters: Some(1234),
            prompt_tokens: Some(64),
            new_tokens: 32,
            server: Some(ServerFacts { url: url.into(), ..ServerFacts::default() }),
        };
        let points = vec![point(1, 100.0, 90.0, true), point(8, 50.0, 380.0, true), point(16, 20.0, 300.0, false)];
        let table = ParetoTable { subject, price_source: Some("a list".into()), points };
        Pareto {
            tables: vec![table],
            currency: Some("EUR".into()),
            unused: Vec::new(),
            unchecked: vec![PathBuf::from("large")],
        }
    }

    #[test]
    fn a_table_has_the_currency_the_front_and_what_is_not_counted() {
        let found = found("http://127.0.0.1:1/v1");
        let rows = pareto_rows(&found.tables[0], Some("EUR"), Language::English);
        assert_eq!(
            rows[0],
            ["prompts", "results", "a user", "a device", "first token", "tokens/J", "EUR per 1M", "verdict"]
        );
        assert_eq!(rows[1], ["1 *", "1", "100", "90.0", "250 ms", "unknown", "0.500", "unofficial"]);
        assert_eq!(rows[3][0], "16");
        assert_eq!([0.008_27, 1.5, 1234.0].map(cost), ["0.00827", "1.50", "1234"]);
        let notes = pareto_notes(&found, Language::English).join("\n");
        for said in [
            "the power of the host, is not counted",
            "checks it): large",
            "Price: a list",
            "divided by 1 (--server-devices)",
        ] {
            assert!(notes.contains(said), "{said}: {notes}");
        }
        assert_eq!(
            pareto_subject(&found.tables[0].subject),
            format!(
                "smollm2_135m:interpreter: cpu, openai, http://127.0.0.1:1/v1, fp32, {} parameters, 64 + 32 tokens",
                count(1234)
            )
        );
    }

    #[test]
    fn several_results_of_a_configuration_have_their_range() {
        let mut found = found("a");
        let lines =
            |found: &Pareto| pareto_figure(found, Language::English).unwrap().elements.matches("<polyline").count();
        let of_one = lines(&found);
        let point = &mut found.tables[0].points[1];
        point.paths.push(PathBuf::from("s"));
        (point.user_tokens_per_s_range, point.device_tokens_per_s_range) = (Some([40.0, 60.0]), Some([360.0, 380.0]));
        let rows = pareto_rows(&found.tables[0], None, Language::English);
        assert_eq!(rows[2][..4], ["8 *", "2", "50.0 (40.0 to 60.0)", "380 (360 to 380)"]);
        assert!(pareto_notes(&found, Language::English).iter().any(|note| note == REPEATED));
        assert_eq!(lines(&found), of_one + 2, "a cross");
    }

    #[test]
    fn the_page_draws_several_results_with_their_table_in_both_languages() {
        for language in [Language::English, Language::Chinese] {
            let text = page(&[], &[], (&found("<script>"), &Roofline::default()), language);
            assert_eq!((text.matches("<svg ").count(), text.matches("<circle").count()), (1, 3), "{text}");
            assert!(text.contains("380") && text.contains("&lt;script&gt;") && !text.contains("<script"), "{text}");
        }
        let mut one = found("a");
        one.tables[0].points.truncate(1);
        assert!(
            !page(&[], &[], (&one, &Roofline::default()), Language::English).contains("<svg "),
            "one result has no line"
        );
    }
}
