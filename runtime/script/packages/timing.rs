//! `timing`: named parts of a step. The host measures them; scripts never see a time.

use rhai::plugin::*;
use rhai::{Dynamic, FnPtr, ImmutableString, Module, NativeCallContext};

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

/// Different names at most.
const NAMES: usize = 1000;

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
        let mut spans = lock(&host.spans);
        match spans.iter().position(|span| span.name == name) {
            Some(at) => spans[at].time = spans[at].time + time,
            None if spans.len() >= NAMES => return Err(format!("more than {NAMES} different spans").into()),
            None => spans.push(Span { name, time }),
        }
        Ok(result)
    }
}
