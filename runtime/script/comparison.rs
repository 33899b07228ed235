//! Comparisons that have no meaning are errors.
//!
//! Rhai compares values of different types without an error: `<` is false and `!=` true. A model's layer or a session
//! that is compared with a number by mistake would therefore select a branch. Knows nothing about packages: a package
//! registers the comparisons that its types have, and Rhai prefers those.

use rhai::{Dynamic, Engine, FuncRegistration, Module, NativeCallContext};

use super::names::script_type;
use super::sandbox::{Fallible, script_state};

/// The comparisons, each with whether it is true for a value and `()`; `None` if it is then an error, too.
const COMPARISONS: [(&str, Option<bool>); 6] =
    [("==", Some(false)), ("!=", Some(true)), ("<", None), ("<=", None), (">", None), (">=", None)];

/// Makes a comparison of a value of the host's own types with any other value an error, unless a package defines it.
/// Whether a value is `()` can still be asked.
pub(super) fn refuse_meaningless(engine: &mut Engine) {
    let mut module = Module::new();
    for (operator, with_unit) in COMPARISONS {
        let refuse = move |context: NativeCallContext<'_>, a: Dynamic, b: Dynamic| -> Fallible<bool> {
            script_state(&context)?;
            match with_unit.filter(|_| a.is_unit() || b.is_unit()) {
                Some(answer) => Ok(answer),
                None => {
                    let (a, b) = (script_type(&a), script_type(&b));
                    Err(format!("`{operator}` has no meaning between `{a}` and `{b}`").into())
                }
            }
        };
        FuncRegistration::new(operator).set_into_module(&mut module, refuse);
    }
    engine.register_global_module(module.into());
}
