//! `timing`: named parts of a step. The host measures them; scripts never see a time.

use rhai::plugin::*;
use rhai::{Dynamic, FnPtr, ImmutableString, Module, NativeCallContext};

use crate::script::budget::Budget;
use crate::script::sandbox::{Fallible, host_of, lock};
use crate::units::Seconds;

/// A named part of the steps.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// The name that the script gave.
    pub name: ImmutableString,
    /// Wall time of the part, summed over its runs. What an engine still computes when the part ends is not in it.
    pub time: Seconds,
}

/// Different names at most, over all steps.
const NAMES: usize = 1000;
/// Bytes of a name at most.
const NAME_BYTES: usize = 200;

/// The parts of all steps, in the order of their first run.
#[derive(Default)]
pub(crate) struct Spans {
    all: Vec<Span>,
    /// How often each part ran since they were last taken.
    runs: Vec<u64>,
}

impl Spans {
    fn add(&mut self, name: &ImmutableString, time: Seconds) -> Fallible<()> {
        if let Some(at) = self.all.iter().position(|span| span.name == *name) {
            self.all[at].time = self.all[at].time + time;
            self.runs[at] += 1;
            return Ok(());
        }
        if name.len() > NAME_BYTES || name.chars().any(char::is_control) {
            return Err(format!("a span's name is a line of at most {NAME_BYTES} bytes").into());
        }
        if self.all.len() >= NAMES {
            return Err(format!("more than {NAMES} different spans").into());
        }
        // The host keeps it after the script's memory is counted.
        Budget::uncounted(|| {
            self.all.push(Span { name: name.as_str().into(), time });
            self.runs.push(1);
        });
        Ok(())
    }

    /// The parts that ran since this was last called.
    pub(crate) fn take(&mut self) -> Vec<Span> {
        let ran =
            self.all.iter().zip(&self.runs).filter(|(_, runs)| **runs > 0).map(|(span, _)| span.clone()).collect();
        self.all.iter_mut().for_each(|span| span.time = Seconds::default());
        self.runs.iter_mut().for_each(|runs| *runs = 0);
        ran
    }
}

pub(super) fn module() -> Module {
    rhai::exported_module!(functions)
}

#[export_module]
mod functions {
    /// Runs `part` and has the host measure it as `name`; gives what `part` gives.
    ///
    /// ```rhai
    /// let four = timing::span("sum", || 2 + 2);
    /// ```
    #[rhai_fn(return_raw, volatile)]
    pub fn span(context: NativeCallContext, name: ImmutableString, part: FnPtr) -> Fallible<Dynamic> {
        let host = host_of(&context)?;
        host.budget.check()?;
        let begin = host.host.clock.now();
        let result: Dynamic = part.call_within_context(&context, ())?;
        let time = host.host.clock.now().since(begin);
        lock(&host.spans).add(&name, time)?;
        Ok(result)
    }
}
