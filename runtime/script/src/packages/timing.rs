//! `timing`: named spans within a step. The host measures them; scripts cannot read the time.

use std::iter;

use rhai::plugin::*;
use rhai::{Dynamic, FnPtr, ImmutableString, Module, NativeCallContext};

use crate::budget::Budget;
use crate::sandbox::{Fallible, lock, script_state};
use flagperf_core::measure::Nanos;
use flagperf_core::units::Seconds;
use flagperf_engine::AnswerTimes;

/// A named part of a step with its measured times.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Span {
    /// The name chosen by the script.
    pub name: ImmutableString,
    /// Number of runs.
    pub runs: u64,
    /// Items that the script processed in all runs, such as tokens; 0 when the script states none.
    pub items: u64,
    /// Wall time, summed over all runs. Work that the engine has not finished when a run ends is not included.
    pub total: Seconds,
    /// Wall time of each run, at most the first [`SPAN_TIMES_MAX`].
    pub times: Vec<Seconds>,
    /// The beginning of each of these runs.
    pub begins: Vec<Nanos>,
}

/// The time from sending a prompt to the first tokens of its answer, for an engine that generates text.
const FIRST_TOKEN: &str = "first_token";
/// The time from one arrival of tokens to the next.
const NEXT_TOKEN: &str = "next_token";
/// Largest number of runs of one span whose times are kept for percentiles.
pub const SPAN_TIMES_MAX: usize = 1_000_000;
/// Largest number of different names, over all steps.
const NAMES_MAX: usize = 1000;
/// Largest length of a name in bytes.
const NAME_BYTES_MAX: usize = 200;
/// Largest number of items of one run: small enough that no number of runs overflows a 64-bit count.
const ITEMS_MAX: i64 = 1 << 32;

/// The spans of all steps, in the order of their first run.
#[derive(Default)]
pub(crate) struct Spans {
    all: Vec<Span>,
    /// The times of the answers of an engine that generates text; `None` unless they are kept.
    answers: Option<Vec<AnswerTimes>>,
    /// Whether there were any.
    has_answers: bool,
}

impl Spans {
    fn add(&mut self, name: &ImmutableString, items: u64, begin: Nanos, time: Seconds) -> Fallible<()> {
        let index = match self.all.iter().position(|span| span.name == *name) {
            Some(index) => index,
            None => self.add_name(name)?,
        };
        let span = &mut self.all[index];
        span.runs += 1;
        span.items = span.items.saturating_add(items);
        span.total = span.total + time;
        if span.times.len() < SPAN_TIMES_MAX {
            // Not counted as the script's memory, because the host keeps the times after the call.
            Budget::uncounted(|| {
                span.times.push(time);
                span.begins.push(begin);
            });
        }
        Ok(())
    }

    /// Adds what a run of an engine that generates text measured: [`FIRST_TOKEN`] of each prompt, and [`NEXT_TOKEN`]. Tokens that
    /// arrived at once are one span, of as many items.
    pub(crate) fn add_answers(&mut self, begin: Nanos, answers: &[AnswerTimes]) -> Fallible<()> {
        let at = |time: Nanos| Nanos(begin.0.saturating_add(time.0));
        self.has_answers |= !answers.is_empty();
        for answer in answers {
            if let Some(kept) = &mut self.answers {
                let arrivals = answer.arrivals.iter().map(|(arrived, tokens)| (at(*arrived), *tokens)).collect();
                kept.push(AnswerTimes { sent: at(answer.sent), arrivals });
            }
            let mut last = answer.sent;
            let names = iter::once(FIRST_TOKEN).chain(iter::repeat(NEXT_TOKEN));
            for ((arrived, tokens), name) in answer.arrivals.iter().zip(names) {
                self.add(&name.into(), *tokens, at(last), arrived.since(last))?;
                last = *arrived;
            }
        }
        Ok(())
    }

    /// Checks a new name, and returns the index of its span.
    fn add_name(&mut self, name: &ImmutableString) -> Fallible<usize> {
        if name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
            return Err(format!("a span's name must be one line of at most {NAME_BYTES_MAX} bytes").into());
        }
        if self.all.len() >= NAMES_MAX {
            return Err(format!("the case has more than {NAMES_MAX} different spans").into());
        }
        Budget::uncounted(|| self.all.push(Span { name: name.as_str().into(), ..Span::default() }));
        Ok(self.all.len() - 1)
    }

    /// Keeps the times of answers from now on, or no longer.
    pub(crate) fn keep_answers(&mut self, keeps: bool) {
        self.answers = keeps.then(Vec::new);
    }

    /// Returns whether the engine has told when tokens of answers arrived.
    pub(crate) fn has_answers(&self) -> bool {
        self.has_answers
    }

    /// Returns the times of the answers since the last call of this function, on the clock of the host.
    pub(crate) fn take_answers(&mut self) -> Vec<AnswerTimes> {
        self.answers.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Returns the spans that ran since the last call of this function.
    pub(crate) fn take(&mut self) -> Vec<Span> {
        let empty = |span: &Span| Span { name: span.name.clone(), ..Span::default() };
        let spans = self.all.iter_mut().map(|span| {
            let empty = empty(span);
            std::mem::replace(span, empty)
        });
        spans.filter(|span| span.runs > 0).collect()
    }
}

pub(super) fn module() -> Module {
    rhai::exported_module!(functions)
}

fn measure(context: &NativeCallContext, name: &ImmutableString, items: u64, part: &FnPtr) -> Fallible<Dynamic> {
    let script = script_state(context)?;
    script.budget.check()?;
    let begin = script.services.clock.now();
    let result: Dynamic = part.call_within_context(context, ())?;
    let time = script.services.clock.now().since(begin);
    lock(&script.spans).add(name, items, begin, time)?;
    Ok(result)
}

#[export_module]
mod functions {
    /// Runs `part` and records its wall time as the span `name`. Returns the result of `part`.
    ///
    /// ```rhai
    /// let four = timing::span("sum", || 2 + 2);
    /// ```
    #[rhai_fn(return_raw, volatile)]
    pub fn span(context: NativeCallContext, name: ImmutableString, part: FnPtr) -> Fallible<Dynamic> {
        measure(&context, &name, 0, &part)
    }

    /// Runs `part`, which processes `items` items, such as tokens: the host also reports items per second.
    ///
    /// ```rhai
    /// let four = timing::span("decode", 8, || 2 + 2);
    /// ```
    #[rhai_fn(name = "span", return_raw, volatile)]
    pub fn span_of_items(
        context: NativeCallContext,
        name: ImmutableString,
        items: i64,
        part: FnPtr,
    ) -> Fallible<Dynamic> {
        if !(0..=ITEMS_MAX).contains(&items) {
            return Err(format!("span `{name}`: the number of items must be from 0 to {ITEMS_MAX}, not {items}").into());
        }
        measure(&context, &name, items as u64, &part)
    }
}
