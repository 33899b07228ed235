//! The queries of a scenario at a server: each is sent when it arrives, while others are being answered.
//!
//! The thread of the measured loop prepares a query and hands it to a thread of its own, which sends it and waits for the answer. Its
//! latency counts from its scheduled arrival, so that a loop that is late makes no figure better.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, Scope};
use std::time::Duration;

use super::super::outputs::QueryOutputs;
use super::super::phase::failure;
use super::super::step;
use super::MeasuredLoop;
use super::scenario::{Answers, FORGOTTEN_AFTER, ScenarioRun};
use flagperf_core::event::Failure;
use flagperf_core::measure::{Clock, Nanos, QueryTimes};
use flagperf_core::units::Seconds;
use flagperf_data::BatchRequest;
use flagperf_engine::{AnswerTimes, DeferredRun, EngineError, Value};
use flagperf_evaluation::name_outputs;
use flagperf_load::{Query, QueryQueue};
use flagperf_script::StepOutput;

/// A query that has yet to be sent.
struct ServerQuery {
    query: Query,
    samples: Vec<u64>,
    started: Nanos,
    runs: Vec<DeferredRun>,
    output: StepOutput<Value>,
}

/// A query whose answer has arrived.
struct ServerAnswer {
    query: Query,
    samples: Vec<u64>,
    /// When it was prepared, when its first request was sent, and when its outputs were in host memory.
    started: Nanos,
    sent: Nanos,
    ended: Nanos,
    answers: Vec<AnswerTimes>,
    output: StepOutput<Value>,
}

impl ServerQuery {
    /// Sends the query and waits for its answer.
    fn ask(self, clock: &dyn Clock) -> Result<ServerAnswer, EngineError> {
        let sent = clock.now();
        let mut answers = Vec::new();
        for run in self.runs {
            answers.extend(run.wait(clock)?);
        }
        let ServerQuery { query, samples, started, output, .. } = ServerQuery { runs: Vec::new(), ..self };
        Ok(ServerAnswer { query, samples, started, sent, ended: clock.now(), answers, output })
    }
}

impl ScenarioRun {
    /// Returns the answer to a query; `None` if there is none while a rate is searched for: the server refuses what it cannot answer.
    fn answer_of(&mut self, answer: Result<ServerAnswer, EngineError>) -> Result<Option<ServerAnswer>, Failure> {
        match answer {
            Ok(answer) => Ok(Some(answer)),
            Err(error) if self.scenario.searches_rate() => {
                self.refused.get_or_insert(error.to_string());
                Ok(None)
            }
            Err(error) => Err(failure(&error, error.hint())),
        }
    }
}

/// Returns when the first token of each answer had arrived, and the largest mean time between the tokens of one: from its first tokens to
/// its last, for each of those that arrived in this time. A server that sends all at once has the mean over the whole answer.
fn token_times(answers: &[AnswerTimes]) -> (Option<Nanos>, Option<Seconds>) {
    let first = answers.iter().filter_map(|answer| Some(answer.arrivals.first()?.0));
    let mean = |answer: &AnswerTimes| {
        let ((first, at_first), (last, _)) = (*answer.arrivals.first()?, *answer.arrivals.last()?);
        let tokens: u64 = answer.arrivals.iter().map(|(_, tokens)| tokens).sum();
        let (time, count) = match tokens - at_first {
            0 => (last.since(answer.sent), tokens),
            later => (last.since(first), later),
        };
        (tokens > 1).then(|| Seconds(time.0 / count as f64))
    };
    (first.max(), answers.iter().filter_map(mean).reduce(|a, b| if b.0 > a.0 { b } else { a }))
}

impl MeasuredLoop<'_> {
    /// Answers queries until none follows and none is being answered. Returns whether it ended before, as
    /// [`MeasuredLoop::answer_queries`].
    pub(super) fn answer_queries_at_server(
        &mut self,
        run: &mut ScenarioRun,
        answers: &mut Answers,
        queue: &QueryQueue,
        (allowed, time_max): (Option<u64>, f64),
    ) -> Result<bool, Failure> {
        let clock = self.progress.clock;
        let (sender, receiver) = channel();
        let begin = answers.begin;
        let left = || Seconds(time_max - clock.now().since(begin).0);
        thread::scope(|scope| {
            let (mut in_flight, mut is_cut) = (0, false);
            while !is_cut && let Some(queries) = queue.take(1, Seconds(0.0), clock) {
                for query in queries {
                    start(scope, self.prepare_query(run, answers, query)?, clock, &sender)?;
                    in_flight += 1;
                }
                let wait = (in_flight == run.in_flight_max).then(left);
                in_flight -= self.take_answers(run, answers, &receiver, wait)?;
                is_cut = answers.ends_early(allowed) || left().0 <= 0.0 || run.refused.is_some();
            }
            while in_flight > 0 && !is_cut {
                in_flight -= self.take_answers(run, answers, &receiver, Some(left()))?;
                is_cut = answers.ends_early(allowed) || left().0 <= 0.0 || run.refused.is_some();
            }
            // Those that are still being answered count no more, but must not disturb the next trial. The engine limits the time of each.
            for answer in receiver.iter().take(in_flight) {
                run.answer_of(answer)?;
            }
            Ok(is_cut)
        })
    }

    /// Sends a query and waits for its answer.
    pub(super) fn answer_at_server(
        &mut self,
        run: &mut ScenarioRun,
        answers: &mut Answers,
        query: Query,
    ) -> Result<(), Failure> {
        let query = self.prepare_query(run, answers, query)?;
        let answer = query.ask(self.progress.clock);
        self.note_answer(run, answers, answer)
    }

    /// Reads the samples of a query, and runs the forward function on them.
    fn prepare_query(
        &mut self,
        run: &mut ScenarioRun,
        answers: &mut Answers,
        query: Query,
    ) -> Result<ServerQuery, Failure> {
        let started = self.progress.clock.now();
        let samples = answers.draw(&run.samples, run.scenario.samples_per_query as usize);
        let request = BatchRequest { number: 0, samples: samples.as_slice().into(), perturbation: None };
        let batch = run.loader.load(request).map_err(|e| failure(&e, e.hint()))?;
        let (runs, output) = self.model.begin_query(&batch)?;
        run.loader.recycle(batch).map_err(|e| failure(&e, "a script must not keep the tensors of a batch"))?;
        Ok(ServerQuery { query, samples, started, runs, output })
    }

    /// Notes the answers that have arrived, and waits so long for the first one. Returns their number.
    fn take_answers(
        &mut self,
        run: &mut ScenarioRun,
        answers: &mut Answers,
        receiver: &Receiver<Result<ServerAnswer, EngineError>>,
        wait: Option<Seconds>,
    ) -> Result<usize, Failure> {
        let first = wait.map(|Seconds(time)| receiver.recv_timeout(Duration::from_secs_f64(time.max(0.0))));
        let mut taken = 0;
        for answer in first.into_iter().flatten().chain(receiver.try_iter()) {
            self.note_answer(run, answers, answer)?;
            taken += 1;
        }
        Ok(taken)
    }

    /// Notes the times of a query, and keeps its outputs if they are drawn.
    fn note_answer(
        &mut self,
        run: &mut ScenarioRun,
        answers: &mut Answers,
        answer: Result<ServerAnswer, EngineError>,
    ) -> Result<(), Failure> {
        let Some(answer) = run.answer_of(answer)? else { return Ok(()) };
        let since = |at: Nanos| at.since(answers.begin);
        let (first_token, next_token_s) = token_times(&answer.answers);
        let times = QueryTimes {
            trial: run.trial,
            scheduled_s: since(answer.query.scheduled),
            issued_s: since(answer.query.issued),
            started_s: since(answer.started),
            ended_s: since(answer.ended),
            core_s: answer.ended.since(answer.sent),
            batch: answers.batches,
            first_token_s: first_token.map(since),
            next_token_s,
        };
        answers.over_bound += u64::from(!run.scenario.is_kept_by(&times));
        answers.times.push(times);
        answers.batches += 1;
        self.report_answers(run, answers);
        let output = step::copy_to_host(answer.output).map_err(|e| failure(&e, ""))?;
        run.outputs.add(|| QueryOutputs { samples: answer.samples, outputs: name_outputs(&output) });
        if answers.batches.is_multiple_of(FORGOTTEN_AFTER) {
            self.model.forget_unmeasured();
        }
        Ok(())
    }
}

/// Starts the thread of a query.
fn start<'scope>(
    scope: &'scope Scope<'scope, '_>,
    query: ServerQuery,
    clock: &'scope dyn Clock,
    sender: &Sender<Result<ServerAnswer, EngineError>>,
) -> Result<(), Failure> {
    let sender = sender.clone();
    let ask = move || {
        let answer = catch_unwind(AssertUnwindSafe(|| query.ask(clock)));
        let answer = answer.unwrap_or_else(|_| Err(EngineError::Failed("the request ended in a panic".to_owned())));
        // The loop has failed if it no longer receives.
        drop(sender.send(answer));
    };
    let started = thread::Builder::new().spawn_scoped(scope, ask);
    started.map(drop).map_err(|error| failure(&format!("no thread for a query: {error}"), ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_answer_of_a_query_gives_its_times() {
        let answer = |arrivals: &[(u64, u64)]| AnswerTimes {
            sent: Nanos(0),
            arrivals: arrivals.iter().map(|(at, tokens)| (Nanos(*at), *tokens)).collect(),
        };
        let seconds = |ns: u64| Some(Seconds::from_nanos(ns));
        assert_eq!(token_times(&[]), (None, None));
        assert_eq!(token_times(&[answer(&[(7, 1)])]), (Some(Nanos(7)), None));
        assert_eq!(token_times(&[answer(&[(80, 4)])]), (Some(Nanos(80)), seconds(20)), "all at once");
        assert_eq!(token_times(&[answer(&[(80, 3), (90, 1)])]), (Some(Nanos(80)), seconds(10)));
        // The second event has the two other tokens.
        let late = answer(&[(100, 1), (140, 2)]);
        assert_eq!(token_times(std::slice::from_ref(&late)), (Some(Nanos(100)), seconds(20)));
        assert_eq!(token_times(&[late, answer(&[(50, 1), (110, 2)])]), (Some(Nanos(100)), seconds(30)));
    }
}
