//! Tests of what the plan takes from the engines of this machine: version and operator set.

use super::tests::{catalogue, engines, runnable};
use super::*;
use flagperf_config::fixture::{Checkout, messages_of, set};
use flagperf_core::event::Level;

/// Returns a checkout whose framework and compiler set no options.
fn chip() -> Checkout {
    let vendor =
        "name: chip\nabout: a\nframeworks: {frame: {engine: interpreter}}\ncompilers: {fast: {engine: rten}}\n";
    let host = "VENDOR: chip\nCASES:\n    \"toy:frame_1.2\": data\n";
    runnable().with("vendors/chip/vendor.yaml", vendor).with("configs/host.yaml", host)
}

/// Returns the errors of a plan on a machine whose engines have this version and this newest operator set.
fn errors(version: &str, opset_max: i64, arguments: &[&str]) -> Vec<String> {
    let version = version.to_owned();
    let describe: DescribeEngine = Box::new(move |choice| {
        let description = engines().into_iter().find(|engine| engine.name == choice.engine).unwrap();
        let description = flagperf_core::description::EngineDescription { opset_max, ..description };
        Ok(EngineOnMachine { description: Some(description), version: Some(version.clone()), ..Default::default() })
    });
    let checkout = chip();
    let catalogue = Catalogue { engines: engines(), describe, ..catalogue(checkout.root()) };
    let planned = plan(&checkout.load(&set(arguments)).unwrap(), &catalogue);
    planned.map_or_else(|errors| messages_of(Level::Error, &errors.0), |_| Vec::new())
}

#[test]
fn an_engine_of_another_version_than_its_name_requires_is_refused() {
    for version in ["1.2", "1.2.7"] {
        assert_eq!(errors(version, 23, &[]), [""; 0], "{version}");
    }
    assert_eq!(
        errors("1.20", 23, &[]),
        [
            "configs/host.yaml:3: framework `frame_1.2` requires version `1.2` (found: `1.20`)\n  hint: in `CASES`, name the \
          found version or none, or install the required version"
        ]
    );
}

#[test]
fn an_engine_that_knows_only_older_operators_is_refused_for_a_model_of_the_case() {
    let message =
        |engine: &str| format!("{engine} supports operator set 1 at most, but models are built of operator set 17");
    assert_eq!(
        errors("1.2", 1, &[]),
        [
            format!("configs/host.yaml:3: {}", message("framework `frame_1.2`")),
            format!("configs/toy/configurations.yaml:4: {}", message("compiler `fast`")),
        ]
    );
}
