//! Comparisons that have no meaning are errors.
//!
//! Rhai compares values of different types without an error: `<` is false and `!=` true. A layer or a model that is
//! compared with a number by mistake would therefore select a branch. Tensors and values of a graph define their
//! comparisons themselves.

use rhai::{Dynamic, Engine, FuncRegistration, Module, NativeCallContext};

use super::data::Pipeline;
use super::metric::Metrics;
use super::nn::{Graph, Rotary};
use super::session::{Model, States};
use crate::names::script_type;
use crate::sandbox::{Fallible, script_state};

/// The comparisons, each with whether it is true for a value and `()`; `None` if it is then an error, too.
const COMPARISONS: [(&str, Option<bool>); 6] =
    [("==", Some(false)), ("!=", Some(true)), ("<", None), ("<=", None), (">", None), (">=", None)];

/// Makes every comparison of a value of the packages' own types an error. Only whether it is `()` can be asked.
pub(crate) fn refuse_meaningless_comparisons(engine: &mut Engine) {
    let mut module = Module::new();
    refuse::<Graph>(&mut module);
    refuse::<Metrics>(&mut module);
    refuse::<Model>(&mut module);
    refuse::<Pipeline>(&mut module);
    refuse::<Rotary>(&mut module);
    refuse::<States>(&mut module);
    engine.register_global_module(module.into());
}

fn refuse<T: Clone + Send + Sync + 'static>(module: &mut Module) {
    for (operator, with_unit) in COMPARISONS {
        let answer = move |context: &NativeCallContext<'_>, a: &Dynamic, b: &Dynamic| -> Fallible<bool> {
            script_state(context)?;
            let unit = with_unit.filter(|_| a.is_unit() || b.is_unit());
            let (a, b) = (script_type(a), script_type(b));
            unit.ok_or_else(|| format!("`{operator}` has no meaning between `{a}` and `{b}`").into())
        };
        let on_the_left =
            move |context: NativeCallContext<'_>, a: T, b: Dynamic| answer(&context, &Dynamic::from(a), &b);
        FuncRegistration::new(operator).set_into_module(module, on_the_left);
        let on_the_right =
            move |context: NativeCallContext<'_>, a: Dynamic, b: T| answer(&context, &a, &Dynamic::from(b));
        FuncRegistration::new(operator).set_into_module(module, on_the_right);
    }
}
