//! `log`: lines for the logs of the run.

use rhai::plugin::*;
use rhai::{Module, NativeCallContext};

use crate::event::Level;
use crate::script::sandbox::{Fallible, host_of};

pub(super) fn module() -> Module {
    rhai::exported_module!(functions)
}

fn say(context: &NativeCallContext<'_>, level: Level, message: &str) -> Fallible<()> {
    let host = host_of(context)?;
    host.budget.check()?;
    host.say(level, context.call_position().line(), message);
    Ok(())
}

#[export_module]
mod functions {
    /// Says something about the normal course.
    ///
    /// ```rhai
    /// log::info("three graphs");
    /// ```
    #[rhai_fn(return_raw, volatile)]
    pub fn info(context: NativeCallContext, message: &str) -> Fallible<()> {
        say(&context, Level::Info, message)
    }

    /// Says something that a reader of the result should know.
    ///
    /// ```rhai
    /// log::warn("the last layer has no bias");
    /// ```
    #[rhai_fn(return_raw, volatile)]
    pub fn warn(context: NativeCallContext, message: &str) -> Fallible<()> {
        say(&context, Level::Warning, message)
    }

    /// Says something for developers.
    ///
    /// ```rhai
    /// log::detail(`stage ${2}`);
    /// ```
    #[rhai_fn(return_raw, volatile)]
    pub fn detail(context: NativeCallContext, message: &str) -> Fallible<()> {
        say(&context, Level::Debug, message)
    }
}
