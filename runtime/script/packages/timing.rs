//! `timing`: named spans within a step. The host measures them; scripts cannot read the time.

use rhai::plugin::*;
use rhai::{Dynamic, FnPtr, ImmutableString, Module, NativeCallContext};

use crate::script::budget::Budget;
use crate::script::sandbox::{Fallible, lock, script_state};
use crate::units::Seconds;

/// A named part of a step with its measured time.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// The name chosen by the script.
    pub name: ImmutableString,
    /// Wall time, summed over all runs of the span. Work that the engine has not finished when the span ends is not
    /// included.
    pub time: Seconds,
}

/// Largest number of different names, over all steps.
const NAMES_MAX: usize = 1000;
/// Largest length of a name in bytes.
const NAME_BYTES_MAX: usize = 200;

/// The spans of all steps, in the order of their first run.
#[derive(Default)]
pub(crate) struct Spans {
    all: Vec<Span>,
    /// How often each span ran since the last call of `take`.
    runs: Vec<u64>,
}

impl Spans {
    fn add(&mut self, name: &ImmutableString, time: Seconds) -> Fallible<()> {
        if let Some(at) = self.all.iter().position(|span| span.name == *name) {
            self.all[at].time = self.all[at].time + time;
            self.runs[at] += 1;
            return Ok(());
        }
        if name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
            return Err(format!("a span's name must be one line of at most {NAME_BYTES_MAX} bytes").into());
        }
        if self.all.len() >= NAMES_MAX {
            return Err(format!("the case has more than {NAMES_MAX} different spans").into());
        }
        // Not counted as the script's memory, because the host keeps the span after the call.
        Budget::uncounted(|| {
            self.all.push(Span { name: name.as_str().into(), time });
            self.runs.push(1);
        });
        Ok(())
    }

    /// Returns the spans that ran since the last call of this function.
    pub(crate) fn take(&mut self) -> Vec<Span> {
        let spans =
            self.all.iter().zip(&self.runs).filter(|(_, runs)| **runs > 0).map(|(span, _)| span.clone()).collect();
        self.all.iter_mut().for_each(|span| span.time = Seconds::default());
        self.runs.iter_mut().for_each(|runs| *runs = 0);
        spans
    }
}

pub(super) fn module() -> Module {
    rhai::exported_module!(functions)
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
        let script = script_state(&context)?;
        script.budget.check()?;
        let begin = script.services.clock.now();
        let result: Dynamic = part.call_within_context(&context, ())?;
        let time = script.services.clock.now().since(begin);
        lock(&script.spans).add(&name, time)?;
        Ok(result)
    }
}
