//! `log`: lines for the logs of the run.

use rhai::plugin::*;
use rhai::{Module, NativeCallContext};

use crate::sandbox::{Fallible, script_state};
use flagperf_core::event::Level;

pub(super) fn module() -> Module {
    rhai::exported_module!(functions)
}

fn write_line(context: &NativeCallContext<'_>, level: Level, message: &str) -> Fallible<()> {
    let script = script_state(context)?;
    script.budget.check()?;
    script.log(level, context.call_position().line(), message);
    Ok(())
}

#[export_module]
mod functions {
    /// Logs a message about the normal course of the run.
    ///
    /// ```rhai
    /// log::info("three graphs");
    /// ```
    #[rhai_fn(return_raw, volatile)]
    pub fn info(context: NativeCallContext, message: &str) -> Fallible<()> {
        write_line(&context, Level::Info, message)
    }

    /// Logs a warning that a reader of the result should see.
    ///
    /// ```rhai
    /// log::warn("the last layer has no bias");
    /// ```
    #[rhai_fn(return_raw, volatile)]
    pub fn warn(context: NativeCallContext, message: &str) -> Fallible<()> {
        write_line(&context, Level::Warning, message)
    }

    /// Logs a message for developers.
    ///
    /// ```rhai
    /// log::detail(`stage ${2}`);
    /// ```
    #[rhai_fn(return_raw, volatile)]
    pub fn detail(context: NativeCallContext, message: &str) -> Fallible<()> {
        write_line(&context, Level::Debug, message)
    }
}
