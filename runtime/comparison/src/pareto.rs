//! Results of cases that generate text, by the number of prompts that are answered at the same time: how fast each user is served, how many
//! tokens a device generates for all users, and what a token costs.
//!
//! More prompts at a time use a device better and serve each user more slowly. The results that are not worse than another one in both are
//! the Pareto front.

use std::path::{Path, PathBuf};

use flagperf_config::{Finding, Prices};
use flagperf_core::event::{EngineFacts, ServerFacts};
use flagperf_core::measure::{Measurement, SpanTimes};
use flagperf_core::units::Seconds;
use flagperf_result::{Record, SampleEnergy, Status, Validity, sample_energy};
use serde::Serialize;

use super::comparable::headline;
use super::history::UnusedResult;
use super::pareto_group::{Measured, mean_point};

/// The spans of an engine that generates text, which the host measures: the time to the first tokens of an answer, the time from one arrival
/// of tokens to the next, and the time of all answers of a batch.
const FIRST_TOKEN: &str = "first_token";
const NEXT_TOKEN: &str = "next_token";
const ANSWERS: &str = "answers";
/// The spans by which lib/generation.rhai names the run of a model that computes the first token of each answer, and each further run.
const PREFILL: &str = "prefill";
const DECODE: &str = "decode";
/// The name of the device of a server in a file of prices.
const SERVER: &str = "server";

/// Results of cases that generate text.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Pareto {
    /// Results of the same work with the same engine on the same device share a table.
    pub tables: Vec<ParetoTable>,
    /// The currency of the costs; `None` without prices.
    pub currency: Option<String>,
    /// The results that are not used.
    pub unused: Vec<UnusedResult>,
    /// The results that are used although it was not checked whether they contradict themselves.
    pub unchecked: Vec<PathBuf>,
}

/// Results of the same work with the same engine on the same device, in the order of the numbers of prompts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ParetoTable {
    #[serde(flatten)]
    pub subject: ParetoSubject,
    /// What the prices include, and where they are from.
    pub price_source: Option<String>,
    pub points: Vec<ParetoPoint>,
}

/// What the results of a table have in common.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ParetoSubject {
    /// The case with its framework.
    pub key: String,
    pub vendor: String,
    /// The compiler or the framework of the figures.
    pub engine: String,
    /// The engine's name for the device.
    pub device: String,
    pub precision: String,
    /// Parameters of the model; `None` if its engine alone knows them.
    pub parameters: Option<u64>,
    /// Tokens to which prompts are padded; `None` if the case does not state it.
    pub prompt_tokens: Option<u64>,
    /// Tokens of each answer.
    pub new_tokens: u64,
    /// The server that computed, whose devices are not known; `None` without one.
    pub server: Option<ServerFacts>,
}

/// The figures of a configuration: those of its result, or the means of several with the same settings and versions.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ParetoPoint {
    /// The folders of its results, or their records.
    pub paths: Vec<PathBuf>,
    /// Prompts that are answered at the same time.
    pub concurrency: u64,
    /// Mean tokens per second of one answer after its first token. For a model that the host runs for each token: the tokens after the first
    /// one, divided by the time of a step (*core*) without the span `prefill`.
    pub user_tokens_per_s: f64,
    /// The smallest and the largest of several results; `None` for one.
    pub user_tokens_per_s_range: Option<[f64; 2]>,
    /// Whether the server sent whole answers, so that the time to the first token is in `user_tokens_per_s`.
    pub includes_first_token: bool,
    /// Output tokens of all answers per second (*core*), divided by the number of devices.
    pub device_tokens_per_s: f64,
    /// The smallest and the largest of several results; `None` for one.
    pub device_tokens_per_s_range: Option<[f64; 2]>,
    /// Devices by which the tokens were divided.
    pub devices: u64,
    /// Whether a monitor or the user stated this number. Otherwise it is 1, and the figures of a device may be better than the truth.
    pub are_devices_known: bool,
    /// Median time from the prompt to the first token.
    pub first_token_p50_s: Option<Seconds>,
    /// Output tokens per joule; `None` if the energy is not known.
    pub tokens_per_j: Option<f64>,
    /// What consumed this energy.
    pub energy_of: Option<&'static str>,
    /// Cost of a million output tokens; `None` without prices.
    pub cost_per_million_tokens: Option<f64>,
    /// Whether no other configuration of the table is at least as good in both speeds, and better in one.
    pub is_on_front: bool,
    /// The worst verdict of its results.
    pub validity: Validity,
}

impl Pareto {
    /// Computes the figures of results. `server_devices` is the number of devices behind the address of a server.
    ///
    /// # Errors
    /// When a device has no price.
    pub fn of<'r>(
        results: impl IntoIterator<Item = (&'r Path, &'r Record)>,
        mut unused: Vec<UnusedResult>,
        prices: Option<&Prices>,
        server_devices: u32,
    ) -> Result<Self, Finding> {
        let mut tables: Vec<(ParetoSubject, Vec<Vec<Measured>>)> = Vec::new();
        for (path, record) in results {
            let (subject, point) = match figures(path, record, server_devices) {
                Ok(found) => found,
                Err(reason) => {
                    unused.push(UnusedResult { path: path.to_owned(), reason });
                    continue;
                }
            };
            let measured = Measured { record, point };
            let known = tables.iter().position(|(known, _)| *known == subject);
            let table = known.unwrap_or(tables.len());
            if known.is_none() {
                tables.push((subject, Vec::new()));
            }
            let groups = &mut tables[table].1;
            match groups.iter_mut().find(|group| group[0].is_repeated_by(&measured)) {
                Some(group) => group.push(measured),
                None => groups.push(vec![measured]),
            }
        }
        let tables = tables.into_iter().map(|(subject, groups)| ParetoTable::of(subject, &groups, prices));
        let mut tables = tables.collect::<Result<Vec<ParetoTable>, Finding>>()?;
        tables.iter_mut().for_each(ParetoTable::mark_front);
        let currency = prices.map(|prices| prices.currency.clone());
        Ok(Pareto { tables, currency, unused, unchecked: Vec::new() })
    }
}

impl ParetoTable {
    fn of(subject: ParetoSubject, groups: &[Vec<Measured>], prices: Option<&Prices>) -> Result<Self, Finding> {
        let (mut points, mut price_source) = (Vec::new(), None);
        for group in groups {
            let price = prices.map(|prices| prices.of_device(&device_names(&subject, group[0].record))).transpose()?;
            let point = mean_point(group);
            let cost_per_million_tokens = price.map(|price| cost(price.per_hour, point.device_tokens_per_s));
            points.push(ParetoPoint { cost_per_million_tokens, ..point });
            price_source = price_source.or(price.map(|price| price.source.clone()));
        }
        Ok(ParetoTable { subject, price_source, points })
    }

    fn mark_front(&mut self) {
        self.points.sort_by(|a, b| (a.concurrency, &a.paths).cmp(&(b.concurrency, &b.paths)));
        let speeds: Vec<[f64; 2]> =
            self.points.iter().map(|point| [point.user_tokens_per_s, point.device_tokens_per_s]).collect();
        for (point, own) in self.points.iter_mut().zip(&speeds) {
            let is_better = |other: &[f64; 2]| other[0] >= own[0] && other[1] >= own[1] && other != own;
            point.is_on_front = !speeds.iter().any(is_better);
        }
    }
}

/// Returns the cost of a million tokens on a device that is paid by the hour and always generates this many.
fn cost(per_hour: f64, tokens_per_s: f64) -> f64 {
    const SECONDS_PER_HOUR: f64 = 3600.0;
    per_hour / SECONDS_PER_HOUR / tokens_per_s * 1e6
}

/// Returns the names by which a file of prices may state the device of a record.
fn device_names<'r>(subject: &'r ParetoSubject, record: &'r Record) -> Vec<&'r str> {
    let engine = record.headline_phase().and_then(|phase| phase.engine.as_ref());
    let on_processor = engine.is_some_and(|engine| engine.runs_on_processor());
    let processor = record.hosts.first().map(|host| host.machine.cpu.as_str()).filter(|_| on_processor);
    let server = subject.server.as_ref().map(|_| SERVER);
    processor.into_iter().chain(server).chain([subject.device.as_str()]).collect()
}

/// Returns what a result is of, and its figures, or why it has none.
fn figures(path: &Path, record: &Record, server_devices: u32) -> Result<(ParetoSubject, ParetoPoint), String> {
    let verdict = record.validity.verdict;
    if record.status != Status::Ok || verdict == Validity::Invalid {
        return Err("it failed or is invalid".to_owned());
    }
    let (Some(measured), Some(phase)) = (headline(record), record.headline_phase()) else {
        return Err("nothing was measured".to_owned());
    };
    let number = |key: &str| record.settings.get(key).and_then(|setting| setting.value.as_u64());
    let no_text = || "it generates no text".to_owned();
    let new_tokens = number("new_tokens").filter(|tokens| *tokens > 0).ok_or_else(no_text)?;
    let Speed { user_tokens_per_s, includes_first_token, first_token } = speed(measured, new_tokens)?;
    let samples_per_s =
        measured.throughput_core_samples_per_s.filter(|rate| rate.0 > 0.0).ok_or("it has no throughput")?;
    let device_tokens_per_s = samples_per_s.0 * new_tokens as f64;
    if !device_tokens_per_s.is_finite() || measured.batch_size == 0 {
        return Err("its figures are impossible".to_owned());
    }
    let engine = phase.engine.as_ref();
    let server = engine.and_then(|engine| engine.server.clone());
    let own_devices = phase.usage.as_ref().map_or(0, |usage| usage.devices.len() as u64);
    let devices = if server.is_some() { u64::from(server_devices) } else { own_devices.max(1) };
    let on_processor = engine.is_some_and(EngineFacts::runs_on_processor);
    let are_devices_known = server.is_some() || on_processor || own_devices > 0;
    let (tokens_per_j, energy_of) = match sample_energy(record) {
        Some(SampleEnergy::Known { j_per_sample, of }) if j_per_sample > 0.0 => {
            (Some(new_tokens as f64 / j_per_sample), Some(of))
        }
        _ => (None, None),
    };
    let subject = ParetoSubject {
        key: record.key(),
        vendor: record.vendor.clone(),
        engine: record.finish_info.compiler.clone().unwrap_or_else(|| record.framework.clone()),
        device: engine.map(|engine| engine.device.clone()).unwrap_or_default(),
        precision: record.finish_info.precision.clone(),
        parameters: record.phases.iter().find_map(|phase| phase.model.as_ref()?.parameters),
        prompt_tokens: number("prompt_length"),
        new_tokens,
        server,
    };
    let point = ParetoPoint {
        paths: vec![path.to_owned()],
        concurrency: measured.batch_size.into(),
        user_tokens_per_s,
        user_tokens_per_s_range: None,
        includes_first_token,
        device_tokens_per_s: device_tokens_per_s / devices as f64,
        device_tokens_per_s_range: None,
        devices,
        are_devices_known,
        first_token_p50_s: first_token.and_then(|span| span.latency).map(|latency| latency.p50_s).filter(is_time),
        tokens_per_j,
        energy_of,
        cost_per_million_tokens: None,
        is_on_front: false,
        validity: verdict,
    };
    Ok((subject, point))
}

fn is_time(time: &Seconds) -> bool {
    time.0.is_finite() && time.0 >= 0.0
}

/// How fast one answer comes.
struct Speed<'m> {
    user_tokens_per_s: f64,
    includes_first_token: bool,
    /// The times to the first token.
    first_token: Option<&'m SpanTimes>,
}

/// Returns how fast one answer of a loop comes. For a model that the host runs for each token, everything in a step counts except what
/// computed the first token, whatever the script says of the rest.
fn speed(measured: &Measurement, new_tokens: u64) -> Result<Speed<'_>, String> {
    let span = |name: &str| measured.spans.get(name).filter(|span| span.total_s.0 > 0.0);
    let no_text = || "it generates no text".to_owned();
    let (tokens, time, includes_first_token, first_token) = if let Some(answers) = span(ANSWERS) {
        let first_token = span(FIRST_TOKEN);
        match span(NEXT_TOKEN) {
            Some(next) => (next.items as f64, next.total_s.0, false, first_token),
            None => (new_tokens as f64 * answers.runs as f64, answers.total_s.0, true, first_token),
        }
    } else {
        span(DECODE).ok_or_else(no_text)?;
        let prefill = span(PREFILL).ok_or_else(no_text)?;
        let core: f64 = measured.passes.iter().map(|pass| pass.core_s.0).sum();
        let tokens = measured.steps as f64 * (new_tokens - 1) as f64;
        (tokens, core - prefill.total_s.0, false, Some(prefill))
    };
    let user_tokens_per_s = tokens / time;
    match user_tokens_per_s.is_finite() && user_tokens_per_s > 0.0 {
        true => Ok(Speed { user_tokens_per_s, includes_first_token, first_token }),
        false => Err("the times of its tokens are not known".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagperf_core::measure::{Latency, PassTimes};
    use flagperf_core::units::SamplesPerSecond;
    use flagperf_result::{Setting, testing};
    use flagperf_sampling::PhaseUsage;

    fn times(runs: u64, items: u64, total: f64) -> SpanTimes {
        let latency = Latency::of(&[Seconds(total / runs as f64)]);
        SpanTimes { runs, items, total_s: Seconds(total), throughput_items_per_s: None, latency }
    }

    /// Returns the record of 10 steps of `batch` prompts, each with 64 tokens of which the first takes 0.1 s and each further one `next`.
    fn record(batch: u32, next: f64) -> Record {
        let mut record = testing::record();
        let step = 0.1 + 63.0 * next;
        let measured = &mut record.phases[0].measured[0];
        (measured.batch_size, measured.steps) = (batch, 10);
        measured.throughput_core_samples_per_s = Some(SamplesPerSecond(f64::from(batch) / step));
        measured.passes = vec![PassTimes { core_s: Seconds(10.0 * step), ..PassTimes::default() }];
        let spans = [
            (PREFILL, times(10, 640 * u64::from(batch), 1.0)),
            (DECODE, times(630, 630 * u64::from(batch), 630.0 * next)),
        ];
        measured.spans = spans.into_iter().map(|(name, span)| (name.to_owned(), span)).collect();
        let setting = |value: u64| Setting { value: value.into(), origin: String::new() };
        record.settings = [("new_tokens".to_owned(), setting(64)), ("prompt_length".to_owned(), setting(32))].into();
        record.phases[0].engine = Some(EngineFacts { device: "chip:0 Chip X2".into(), ..EngineFacts::default() });
        let usage = PhaseUsage { device_energy_j_per_sample: Some(32.0), ..PhaseUsage::default() };
        record.phases[0].usage = Some(usage);
        record
    }

    fn prices() -> Prices {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("prices.yaml");
        std::fs::write(&path, "currency: EUR\ndevices: {Chip X2: {per_hour: 3.6, source: a list}}\n").unwrap();
        Prices::read(&path).unwrap()
    }

    fn pareto(records: Vec<Record>) -> Pareto {
        let results = records.iter().map(|record| (Path::new("r"), record));
        Pareto::of(results, Vec::new(), Some(&prices()), 1).unwrap()
    }

    #[test]
    fn figures_follow_from_the_times_of_the_tokens() {
        let found = pareto(vec![record(8, 0.01)]);
        let point = &found.tables[0].points[0];
        let close = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-9;
        assert!(close(point.user_tokens_per_s, 100.0), "{point:?}");
        let all = 8.0 * 64.0 / 0.73;
        assert!(close(point.device_tokens_per_s, all), "{point:?}");
        assert!(close(point.cost_per_million_tokens.unwrap(), 3.6 / 3600.0 / all * 1e6), "{point:?}");
        assert_eq!((point.tokens_per_j, point.energy_of), (Some(2.0), Some("device only")));
        assert_eq!((point.first_token_p50_s, found.currency.as_deref()), (Some(Seconds(0.1)), Some("EUR")));
    }

    #[test]
    fn a_result_that_is_worse_in_both_speeds_is_not_on_the_front() {
        // 16 prompts at a time are slower for each user than 8, and generate no more.
        let found = pareto(vec![record(16, 0.04), record(1, 0.005), record(8, 0.01)]);
        let points: Vec<_> =
            found.tables[0].points.iter().map(|point| (point.concurrency, point.is_on_front)).collect();
        assert_eq!(points, [(1, true), (8, true), (16, false)]);
    }

    #[test]
    fn repeats_of_a_configuration_are_one_point_with_the_range_of_their_speeds() {
        let mut other_version = record(8, 0.01);
        other_version.phases[0].engine.as_mut().unwrap().version = "2".to_owned();
        let mut other_setting = record(8, 0.01);
        other_setting.settings.insert("threads".to_owned(), Setting { value: 2.into(), origin: String::new() });
        let found = pareto(vec![record(8, 0.01), record(8, 0.02), record(16, 0.04), other_version, other_setting]);
        let points = &found.tables[0].points;
        assert_eq!(points.iter().map(|point| point.paths.len()).collect::<Vec<_>>(), [1, 1, 2, 1], "{points:?}");
        let close = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-9;
        let group = &points[2];
        assert!(close(group.user_tokens_per_s, 75.0), "{group:?}");
        let [low, high] = group.user_tokens_per_s_range.unwrap();
        assert!(close(low, 50.0) && close(high, 100.0), "{group:?}");
        let [low, high] = group.device_tokens_per_s_range.unwrap();
        assert!(close(low, 512.0 / 1.36) && close(high, 512.0 / 0.73), "{group:?}");
        assert!(close(group.cost_per_million_tokens.unwrap(), 1e3 / group.device_tokens_per_s), "{group:?}");
        assert_eq!((points[0].user_tokens_per_s_range, points[0].is_on_front), (None, true), "{points:?}");
        assert!(!group.is_on_front, "the star is for the mean of the group");
    }

    #[test]
    fn a_script_cannot_make_its_tokens_faster_by_the_spans_that_it_names() {
        let mut empty_spans = record(8, 0.01);
        empty_spans.phases[0].measured[0].spans[DECODE] = times(630_000, 630_000, 1e-3);
        let found = pareto(vec![empty_spans]);
        assert!((found.tables[0].points[0].user_tokens_per_s / 100.0 - 1.0).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn results_without_figures_have_their_reasons() {
        let mut whole_step = record(8, 0.01);
        whole_step.phases[0].measured[0].spans[PREFILL] = times(10, 640, 8.0);
        let mut none = record(8, 0.01);
        none.phases[0].measured[0].spans.clear();
        let mut failed = record(8, 0.01);
        failed.status = Status::Failed;
        let found = pareto(vec![whole_step, none, failed]);
        let reasons: Vec<&str> = found.unused.iter().map(|unused| unused.reason.as_str()).collect();
        let expected = ["the times of its tokens are not known", "it generates no text", "it failed or is invalid"];
        assert!(found.tables.is_empty() && reasons == expected, "{reasons:?}");
    }

    #[test]
    fn the_tokens_of_a_server_are_divided_by_the_devices_that_are_stated() {
        let mut of_server = record(8, 0.01);
        let server = Some(ServerFacts::default());
        of_server.phases[0].engine = Some(EngineFacts { device: "server".into(), server, ..EngineFacts::default() });
        let spans =
            [(ANSWERS, times(10, 5120, 7.3)), (FIRST_TOKEN, times(80, 80, 8.0)), (NEXT_TOKEN, times(5040, 5040, 50.4))];
        of_server.phases[0].measured[0].spans = spans.into_iter().map(|(name, span)| (name.to_owned(), span)).collect();
        let mut whole = of_server.clone();
        whole.phases[0].measured[0].spans.shift_remove(NEXT_TOKEN);
        let results = [(Path::new("a"), &of_server), (Path::new("b"), &whole)];
        let found = Pareto::of(results, Vec::new(), None, 4).unwrap();
        let [token, whole] = &found.tables[0].points[..] else { panic!("two results: {found:?}") };
        assert!((token.user_tokens_per_s - 100.0).abs() < 1e-9 && !token.includes_first_token);
        assert!((whole.user_tokens_per_s - 64.0 / 0.73).abs() < 1e-9 && whole.includes_first_token);
        assert!((token.device_tokens_per_s - 8.0 * 64.0 / 0.73 / 4.0).abs() < 1e-9);
        assert_eq!(token.tokens_per_j, None, "the energy of this machine is not that of the server");
        let error = Pareto::of(results, Vec::new(), Some(&prices()), 4).unwrap_err().to_string();
        assert!(error.contains("no price of the device `server`"), "{error}");
    }
}
