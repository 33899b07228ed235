//! `graph`: changes of a complete graph before it is exported: finds sub-graphs by pattern, replaces and fuses them, computes
//! constants, and removes what nobody reads.
//!
//! Each change is noted with the line of its call. What replaces a place is compared with the place in f64; a difference is
//! an error at that line. Knows nothing about engines.

mod changes;
mod functions;

use rhai::Module;

pub(crate) use changes::Changes;

pub(super) fn module() -> Module {
    rhai::exported_module!(functions::functions)
}
