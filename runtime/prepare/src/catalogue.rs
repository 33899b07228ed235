//! The catalogue of a checkout and of this program, from which cases are planned.

use std::path::Path;

use flagperf_config::{ContainerOptions, Finding, Origin};
use flagperf_container::{ContainerEngine, ContainerError, shared_parts, wide_rights};
use flagperf_core::tensor::DType;
use flagperf_engine::backend::Backend;
use flagperf_engine::{EngineError, LoadOptions, TABLE};
use flagperf_plan::{Catalogue, EngineChoice, RefusedOption, UnavailableEngine};
use indexmap::IndexMap;
use serde_json::Value;

/// Returns the catalogue of the checkout at `root` and of this program.
pub fn catalogue(root: &Path) -> Catalogue {
    let engines = TABLE.iter().map(|engine| engine.description());
    let backends = Backend::all(root).iter().map(|row| (row.name.to_owned(), row.installed())).collect();
    let monitors = flagperf_monitor::TABLE.iter().map(|monitor| monitor.name()).collect();
    let of_devices = flagperf_monitor::TABLE.iter().filter(|monitor| monitor.reads_devices());
    let device_monitors = of_devices.map(|monitor| monitor.name()).collect();
    let check_options = Box::new(check_options);
    let folder = root.to_owned();
    let check_container_engine = Box::new(move |options: &ContainerOptions| check_container_engine(options, &folder));
    Catalogue {
        backends,
        monitors,
        device_monitors,
        check_options,
        check_container_engine,
        ..Catalogue::read(root, engines.collect())
    }
}

fn check_container_engine(options: &ContainerOptions, checkout: &Path) -> Result<Vec<Finding>, UnavailableEngine> {
    let unavailable = |error: ContainerError| UnavailableEngine { reason: error.to_string(), remedy: error.hint() };
    let engine = ContainerEngine::connect().map_err(unavailable)?;
    let refused = engine.refused_options(options).into_iter();
    let refused = refused.map(|refused| Finding::unplaced(refused.message).with_hint(refused.hint).on_machine());
    let wide = wide_rights(options, &engine.facts().socket, checkout).into_iter();
    let wide = wide.map(|right| Finding::warning(Origin::Default, format!("{WIDE_RIGHTS}: {right}")));
    let shared = shared_parts(options).into_iter().map(|part| Finding::warning(Origin::Default, part));
    Ok(refused.chain(wide).chain(shared).collect())
}

/// The beginning of the warning about an option.
const WIDE_RIGHTS: &str = "the container does not separate the worker from the machine, so no result is official";

fn check_options(
    choice: &EngineChoice,
    precision: DType,
    values: &IndexMap<String, Value>,
) -> Result<(), RefusedOption> {
    let Ok(engine) = flagperf_engine::find(&choice.engine) else { return Ok(()) };
    let options = LoadOptions {
        threads: choice.threads as usize,
        precision,
        extra: choice.options.clone(),
        config: values.clone(),
        ..LoadOptions::default()
    };
    flagperf_engine::check_options(engine, &options).map_err(|error| {
        let option = match &error {
            EngineError::Option { option, .. } => option.clone(),
            EngineError::CaseKey { key, .. } => (*key).to_owned(),
            _ => String::new(),
        };
        RefusedOption { option, message: error.to_string() }
    })
}
