//! The scenario of a case: queries that arrive after the passes, and their latency.
//!
//! The model is the one of the passes, with the same sessions. Decides nothing about what the times show.

use std::sync::Arc;
use std::thread;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::super::load::delivery;
use super::super::outputs::{QueryOutputs, QuerySample};
use super::super::phase::failure;
use super::super::step;
use super::{Batches, MeasuredLoop};
use flagperf_config::{BOUNDS_MIN, BadSamplePolicy, QUERIES_MAX};
use flagperf_core::description::Delivery;
use flagperf_core::event::{Event, Failure, Level};
use flagperf_core::measure::{
    Arrival, Clock, Latency, Nanos, QueryColumns, QueryTimes, STEPS_PER_EVENT, Scenario, ScenarioReport, StepTimes,
    TrialEnd, over_bound_max, queries_needed,
};
use flagperf_core::step::Phase;
use flagperf_core::units::Seconds;
use flagperf_data::{BatchRequest, HeldSamples, Loader, LoaderOptions};
use flagperf_evaluation::name_outputs;
use flagperf_host::allow_open_files;
use flagperf_load::{Issuer, Query, QueryQueue, RateSearch, Schedule, SearchStep, Stop, read_recorded_times};

/// Largest number of bytes of the samples that are held in memory, and of samples.
const HELD_BYTES_MAX: usize = 1 << 30;
const HELD_SAMPLES_MAX: usize = 100_000;
/// Bytes of a batch from which several threads copy its samples: for less, they take longer to begin than to copy.
const PARALLEL_BYTES_MIN: usize = 1 << 20;
/// Share of the duration of a measurement that a trial of the search takes, and its limits.
const TRIAL_SHARE: f64 = 0.1;
const TRIAL_MIN: Seconds = Seconds(1.0);
const TRIAL_MAX: Seconds = Seconds(10.0);
/// Batches before which a trial is not cut, so that a moment in which the machine was busy does not decide.
const CUT_BATCHES_MIN: u64 = 20;
/// Queries of a trial for each that its percentile needs, so that single slow queries do not decide.
const TRIAL_QUERIES: f64 = 1.5;
/// Largest number of queries of a trial of the search.
const TRIAL_QUERIES_MAX: u64 = 1_000_000;
/// A trial whose queries are not answered ends this long after twice the time of its schedule.
const OVERLOAD: Seconds = Seconds(60.0);
/// Most queries that a server is sent before it has answered one.
const QUERIES_IN_FLIGHT_MAX: usize = 1024;
/// Batches after which what the forward function remembers of its runs is dropped.
pub(super) const FORGOTTEN_AFTER: u64 = 1024;

/// What a scenario needs beside the measured loop.
pub(super) struct ScenarioRun {
    pub(super) scenario: Scenario,
    pub(super) loader: Loader,
    /// The samples in memory.
    pub(super) samples: Vec<u64>,
    delay: Seconds,
    pub(super) outputs: QuerySample,
    pub(super) trial: u32,
    /// Whether a server answers queries while others are being answered.
    overlap: bool,
    /// How many it is sent at most before it has answered one. A further one waits, which counts as latency.
    pub(super) in_flight_max: usize,
    /// Why a query of the trial was not answered while a rate is searched for, which then does not hold.
    pub(super) refused: Option<String>,
}

/// The queries of a trial that were answered.
pub(super) struct Answers {
    pub(super) random: ChaCha8Rng,
    pub(super) begin: Nanos,
    /// The time in which queries arrive.
    pub(super) expected: Seconds,
    pub(super) times: Vec<QueryTimes>,
    pub(super) batches: u64,
    pub(super) over_bound: u64,
    /// Those whose batch alone took longer than the bound, whatever the rate.
    over_bound_alone: u64,
}

impl Answers {
    /// Draws the samples of queries.
    pub(super) fn draw(&mut self, samples: &[u64], count: usize) -> Vec<u64> {
        (0..count).map(|_| samples[(self.random.next_u64() % samples.len() as u64) as usize]).collect()
    }

    /// Returns whether the bound can no longer hold, because more than `allowed` queries exceeded it.
    pub(super) fn ends_early(&self, allowed: Option<u64>) -> bool {
        self.batches >= CUT_BATCHES_MIN && allowed.is_some_and(|allowed| self.over_bound > allowed)
    }
}

/// Whether the bound of a trial held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TrialOutcome {
    Held,
    Missed,
    /// It cannot hold at any rate: most batches alone take longer.
    Hopeless,
}

impl MeasuredLoop<'_> {
    /// Runs the scenario of the case after the passes, the first of which had these steps.
    ///
    /// # Errors
    /// When a sample or a schedule cannot be read, or computing fails.
    pub(super) fn run_scenario(&mut self, first_pass: &[StepTimes]) -> Result<(), Failure> {
        let scenario = &self.job.parameters.scenario;
        if !scenario.has_queries() || self.job.phase() != Phase::Infer {
            return Ok(());
        }
        let overlap = self.model.defer_runs(true);
        if overlap {
            // Each query that is being answered has a connection.
            allow_open_files();
        } else if delivery(self.job) == Some(Delivery::Server) {
            return Err(failure(&"a scenario at a server needs a model of one graph", ""));
        }
        let mut run = self.prepare_scenario(scenario.clone(), overlap)?;
        match scenario.kind {
            Arrival::SingleStream | Arrival::MultiStream => self.run_stream(&mut run)?,
            Arrival::Server if scenario.searches_rate() => self.search_rate(&mut run, first_pass)?,
            _ => {
                let schedule = self.schedule_of(&run)?;
                self.run_trial(&mut run, &schedule, false)?;
            }
        }
        self.model.defer_runs(false);
        let ScenarioRun { scenario, samples, delay, outputs, .. } = run;
        let engine = flagperf_engine::find(&self.job.engine.engine);
        let have_tokens = overlap && engine.is_ok_and(|engine| engine.description().generates_text);
        let agreement = self.evidence.kept.compare_queries(&outputs.into_kept(), have_tokens);
        let report = ScenarioReport { scenario, samples: samples.len() as u64, queue_delay_s: delay, agreement };
        (self.progress.emit)(Event::Scenario(Box::new(report)));
        Ok(())
    }

    /// Reads samples into memory, drawn at random.
    fn prepare_scenario(&self, scenario: Scenario, overlap: bool) -> Result<ScenarioRun, Failure> {
        let dataset = self.batches.loader.dataset();
        let sample_bytes = HeldSamples::sample_bytes(dataset.as_ref()).max(1);
        let batch_size = if overlap { scenario.samples_per_query } else { self.job.settings.batch_size } as usize;
        let (count, batch_bytes) = (HELD_BYTES_MAX / sample_bytes, sample_bytes * batch_size);
        let mut drawn = self.batches.order.shuffle("samples of queries", 0, dataset.len());
        drawn.truncate(count.clamp(1, HELD_SAMPLES_MAX));
        let skips_bad = self.job.parameters.bad_samples == BadSamplePolicy::Count;
        let held = HeldSamples::read(Arc::clone(dataset), &drawn, skips_bad).map_err(|error| failure(&error, ""))?;
        let samples: Vec<u64> = drawn.into_iter().filter(|index| held.has(*index)).map(|index| index as u64).collect();
        if samples.is_empty() {
            return Err(failure(&"no sample for the queries could be read", ""));
        }
        let options = LoaderOptions {
            batch_size,
            workers: if batch_bytes < PARALLEL_BYTES_MIN { 0 } else { self.job.settings.num_workers as usize },
            prefetch: 0,
            pad_last_batch: true,
            on_bad_sample: BadSamplePolicy::Fail,
            preloaded: false,
        };
        let Batches { loader, .. } = Batches::with_options(self.job, options, self.model.sessions(), Arc::new(held))?;
        let delay = Seconds(f64::from(self.job.settings.queue_delay_us) * 1e-6);
        // Each keeps its request in memory.
        let in_flight_max = (HELD_BYTES_MAX / batch_bytes.max(1)).clamp(1, QUERIES_IN_FLIGHT_MAX);
        Ok(ScenarioRun {
            scenario,
            loader,
            samples,
            delay,
            outputs: QuerySample::default(),
            trial: 0,
            overlap,
            in_flight_max,
            refused: None,
        })
    }

    /// Runs queries each of which arrives when its predecessor has been answered, until the time is over and there are enough for the
    /// percentile.
    fn run_stream(&mut self, run: &mut ScenarioRun) -> Result<(), Failure> {
        let clock = self.progress.clock;
        let needed = queries_needed(run.scenario.percentile);
        let mut answers = self.begin_trial(run, None);
        loop {
            let now = clock.now();
            let number = answers.times.len() as u64;
            if now.since(answers.begin).0 >= run.scenario.min_duration_s.0 && number >= needed {
                break;
            }
            let query = Query { number, scheduled: now, issued: now };
            match run.overlap {
                true => self.answer_at_server(run, &mut answers, query)?,
                false => self.answer(run, &mut answers, &[query])?,
            }
        }
        let scheduled = answers.times.len() as u64;
        let (trial, overlap) = (run.trial, run.overlap);
        self.end_trial(run, answers, TrialEnd { trial, scheduled, overlap, ..TrialEnd::default() });
        Ok(())
    }

    /// Searches for the highest rate at which the bound holds.
    fn search_rate(&mut self, run: &mut ScenarioRun, first_pass: &[StepTimes]) -> Result<(), Failure> {
        // A server is sent a query at a time.
        let batch_size = self.job.settings.batch_size.max(run.scenario.samples_per_query);
        let times: Vec<Seconds> = first_pass.iter().map(|step| step.core_s + step.output_s).collect();
        let step = Latency::of(&times).map_or(1.0, |latency| latency.p50_s.0.max(1e-9));
        let capacity = f64::from(batch_size / run.scenario.samples_per_query) / step;
        let mut search = RateSearch::new(capacity / 2.0);
        let mut step = search.first();
        loop {
            let (rate, duration, queries_max) = match step {
                SearchStep::Try(rate) => {
                    let time = (TRIAL_SHARE * run.scenario.min_duration_s.0).clamp(TRIAL_MIN.0, TRIAL_MAX.0);
                    let bound = run.scenario.bounds().map(|(_, bound)| bound.0).fold(0.0, f64::max);
                    (rate, time.max(BOUNDS_MIN * bound), TRIAL_QUERIES_MAX)
                }
                SearchStep::Measure(rate) => (rate, run.scenario.min_duration_s.0, QUERIES_MAX),
                SearchStep::Found | SearchStep::NotFound => return Ok(()),
            };
            let schedule = self.poisson(run, rate, duration, queries_max);
            match self.run_trial(run, &schedule, true)? {
                // At a lower rate, a batch takes as long.
                TrialOutcome::Hopeless => return Ok(()),
                outcome => step = search.next(outcome == TrialOutcome::Held),
            }
        }
    }

    /// Returns random arrivals at a rate for a time, or longer if the percentile needs more queries.
    fn poisson(&self, run: &ScenarioRun, queries_per_s: f64, duration: f64, queries_max: u64) -> Schedule {
        let needed = TRIAL_QUERIES * queries_needed(run.scenario.percentile) as f64;
        let queries = ((queries_per_s * duration).max(needed).ceil() as u64).min(queries_max);
        let seed = self.batches.order.seed().derive("arrival of queries", run.trial.into());
        Schedule::Poisson { queries, queries_per_s, seed }
    }

    /// Returns the schedule of a scenario whose rate is given.
    fn schedule_of(&self, run: &ScenarioRun) -> Result<Schedule, Failure> {
        let Scenario { queries_per_s, queries_per_burst: size, min_duration_s, schedule, .. } = &run.scenario;
        if let Some(schedule) = schedule {
            let path = self.job.data_dir.join(schedule);
            let hint = "`schedule` of the scenario names a CSV file below the data directory";
            let times = read_recorded_times(&path, QUERIES_MAX).map_err(|error| failure(&error, hint))?;
            return Ok(Schedule::Recorded(times));
        }
        let rate = queries_per_s.unwrap_or_default();
        if *size == 0 {
            return Ok(self.poisson(run, rate, min_duration_s.0, QUERIES_MAX));
        }
        let bursts = (rate * min_duration_s.0 / f64::from(*size)).ceil().max(1.0) as u64;
        Ok(Schedule::Bursts { queries: bursts.saturating_mul((*size).into()), queries_per_s: rate, size: *size })
    }

    /// Runs the queries of a schedule. A trial that `may_be_cut` ends as soon as the bound cannot hold.
    fn run_trial(
        &mut self,
        run: &mut ScenarioRun,
        schedule: &Schedule,
        may_be_cut: bool,
    ) -> Result<TrialOutcome, Failure> {
        let clock = self.progress.clock;
        let (queue, stop) = (QueryQueue::default(), Stop::default());
        let mut answers = self.begin_trial(run, Some(schedule));
        let has_bound = run.scenario.has_bound();
        // Without a bound, and with too few queries to prove one, none holds.
        let provable = has_bound.then(|| over_bound_max(schedule.len(), run.scenario.percentile)).flatten();
        let allowed = (has_bound && may_be_cut).then(|| provable.unwrap_or(0));
        let time_max = 2.0 * answers.expected.0 + OVERLOAD.0;
        let issuer = Issuer { schedule, queue: &queue, stop: &stop, clock, begin: answers.begin };
        let is_cut = thread::scope(|scope| {
            let started = thread::Builder::new().name("queries".to_owned()).spawn_scoped(scope, || issuer.run());
            started.map_err(|error| failure(&format!("no thread for the queries: {error}"), ""))?;
            let answered = match run.overlap {
                true => self.answer_queries_at_server(run, &mut answers, &queue, (allowed, time_max)),
                false => self.answer_queries(run, &mut answers, &queue, (allowed, time_max)),
            };
            stop.set();
            answered
        })?;
        let (queries_per_s, scheduled) = (schedule.queries_per_s(), schedule.len());
        let end = TrialEnd { trial: run.trial, queries_per_s, scheduled, is_cut, overlap: run.overlap };
        if let Some(reason) = run.refused.take() {
            let message = format!("trial {}: the rate does not hold: {reason}", run.trial + 1);
            (self.progress.emit)(Event::Log { level: Level::Warning, source: "scenario".to_owned(), message });
        }
        let held = !is_cut && provable.is_some_and(|most| answers.over_bound <= most);
        let is_hopeless = 2 * answers.over_bound_alone > answers.times.len() as u64;
        self.end_trial(run, answers, end);
        Ok(match held {
            true => TrialOutcome::Held,
            false if is_hopeless => TrialOutcome::Hopeless,
            false => TrialOutcome::Missed,
        })
    }

    /// Answers queries until none follows. Returns whether it ended before, because more than `allowed` queries exceeded the bound or
    /// the time is over.
    fn answer_queries(
        &mut self,
        run: &mut ScenarioRun,
        answers: &mut Answers,
        queue: &QueryQueue,
        (allowed, time_max): (Option<u64>, f64),
    ) -> Result<bool, Failure> {
        let clock = self.progress.clock;
        let count = (self.job.settings.batch_size / run.scenario.samples_per_query) as usize;
        while let Some(queries) = queue.take(count, run.delay, clock) {
            self.answer(run, answers, &queries)?;
            if answers.ends_early(allowed) || clock.now().since(answers.begin).0 > time_max {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Computes one batch with the samples of queries, and notes their times.
    fn answer(&mut self, run: &mut ScenarioRun, answers: &mut Answers, queries: &[Query]) -> Result<(), Failure> {
        let clock: &dyn Clock = self.progress.clock;
        let begin = answers.begin;
        let since = |at: Nanos| at.since(begin);
        let count = queries.len() * run.scenario.samples_per_query as usize;
        let samples = answers.draw(&run.samples, count);
        let started = since(clock.now());
        let request = BatchRequest { number: 0, samples: samples.as_slice().into(), perturbation: None };
        let batch = run.loader.load(request).map_err(|e| failure(&e, e.hint()))?;
        let (core_s, _, output) = self.model.run_unmeasured(&batch, clock)?;
        let ended = since(clock.now());
        for query in queries {
            let times = QueryTimes {
                trial: run.trial,
                scheduled_s: since(query.scheduled),
                issued_s: since(query.issued),
                started_s: started,
                ended_s: ended,
                core_s,
                batch: answers.batches,
                ..QueryTimes::default()
            };
            let bound = run.scenario.latency_bound_s;
            answers.over_bound += u64::from(!run.scenario.is_kept_by(&times));
            answers.over_bound_alone += u64::from(bound.is_some_and(|bound| ended.0 - started.0 > bound.0));
            answers.times.push(times);
        }
        answers.batches += 1;
        self.report_answers(run, answers);
        let rows = step::sample_rows(&batch);
        let (_, output) = step::select_samples(&batch, rows.as_deref(), output)?;
        run.outputs.add(|| QueryOutputs { samples, outputs: name_outputs(&output) });
        drop(output);
        if answers.batches.is_multiple_of(FORGOTTEN_AFTER) {
            self.model.forget_unmeasured();
        }
        run.loader.recycle(batch).map_err(|e| failure(&e, "a script must not keep the tensors of a batch"))
    }

    fn begin_trial(&self, run: &ScenarioRun, schedule: Option<&Schedule>) -> Answers {
        (self.progress.emit)(Event::TrialBegin {
            trial: run.trial,
            scheduled: schedule.map(Schedule::len),
            queries_per_s: schedule.and_then(Schedule::queries_per_s),
        });
        let seed = self.batches.order.seed().derive("queries", run.trial.into());
        Answers {
            random: ChaCha8Rng::from_seed(seed.bytes()),
            expected: schedule.map_or(run.scenario.min_duration_s, |own| own.times().last().unwrap_or_default()),
            begin: self.progress.clock.now(),
            times: Vec::new(),
            batches: 0,
            over_bound: 0,
            over_bound_alone: 0,
        }
    }

    /// Emits how far a trial is, now and then.
    pub(super) fn report_answers(&mut self, run: &ScenarioRun, answers: &Answers) {
        self.progress.report_trial(run.trial, answers.times.len() as u64, answers.begin, answers.expected);
    }

    /// Emits the times of a trial.
    fn end_trial(&mut self, run: &mut ScenarioRun, mut answers: Answers, end: TrialEnd) {
        if end.overlap {
            // Threads report answers in another order than that in which they ended.
            answers.times.sort_by(|a, b| a.ended_s.0.total_cmp(&b.ended_s.0));
            (0..).zip(&mut answers.times).for_each(|(batch, times)| times.batch = batch);
        }
        for times in answers.times.chunks(STEPS_PER_EVENT) {
            (self.progress.emit)(Event::Queries { times: QueryColumns(times.to_vec()) });
        }
        (self.progress.emit)(Event::TrialEnd(end));
        self.model.forget_unmeasured();
        run.trial += 1;
    }
}
