//! The packages to which a function belongs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use rhai::Engine;

use crate::error::function_name;
use crate::packages;

/// Returns the packages with a function or method of this name; empty for a function of the language.
pub fn packages_of(name: &str) -> Vec<&'static str> {
    table().get(name).map(|found| found.iter().copied().collect()).unwrap_or_default()
}

fn table() -> &'static BTreeMap<String, BTreeSet<&'static str>> {
    static TABLE: OnceLock<BTreeMap<String, BTreeSet<&'static str>>> = OnceLock::new();
    TABLE.get_or_init(|| {
        let mut table: BTreeMap<String, BTreeSet<&'static str>> = BTreeMap::new();
        for package in packages::names() {
            let mut engine = Engine::new_raw();
            packages::register(&mut engine, package);
            for signature in engine.gen_fn_signatures(false) {
                let name = function_name(&signature);
                let method = name.rsplit_once("::").map_or(name, |(_, method)| method);
                table.entry(method.to_owned()).or_default().insert(package);
            }
        }
        table
    })
}
