//! Determines which of the seven steps a case runs, from the four settings that steer it.

use std::path::PathBuf;

use super::{CaseSettings, ModelInput};
use flagperf_config::Finding;

/// The phases of a case and their inputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// How validation ends; `None` when there is no validation.
    pub validate: Option<Export>,
    /// The model that inference loads; `None` when there is no inference.
    pub infer: Option<InferenceSource>,
    /// Settings that have no effect on this route.
    pub ignored: Vec<&'static str>,
}

/// Whether validation exports the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Export {
    /// Step d runs.
    Written,
    /// Step d is skipped.
    LeftOut,
}

/// The origin of the model that inference loads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InferenceSource {
    /// The file that validation exports.
    Exported,
    /// A file that existed before the run.
    Existing(ModelInput),
}

/// Determines the route of a case from its settings.
///
/// # Errors
/// Fails when neither phase is left, and when there is no model to compile.
pub fn route(settings: &CaseSettings) -> Result<Route, Finding> {
    let CaseSettings { compiler, no_validation, exist_onnx_path, exist_compiler_path, .. } = settings;
    if compiler.is_none() {
        if *no_validation {
            let message = "`compiler: null` together with `no_validation: true` leaves nothing to do";
            return Err(Finding::unplaced(message).with_hint("change one of the two settings"));
        }
        let ignored = [("exist_onnx_path", exist_onnx_path), ("exist_compiler_path", exist_compiler_path)];
        let ignored = ignored.into_iter().filter(|(_, path)| path.is_some()).map(|(key, _)| key).collect();
        return Ok(Route { validate: Some(Export::LeftOut), infer: None, ignored });
    }
    if *no_validation && exist_onnx_path.is_none() {
        let hint = "name an ONNX file, or any text if the compiler does not open ONNX files";
        return Err(Finding::unplaced("`no_validation: true` needs `exist_onnx_path`").with_hint(hint));
    }
    let export = if exist_onnx_path.is_none() { Export::Written } else { Export::LeftOut };
    Ok(Route {
        validate: (!no_validation).then_some(export),
        infer: Some(inference_source(exist_onnx_path.as_ref(), exist_compiler_path.as_ref())),
        ignored: Vec::new(),
    })
}

fn inference_source(onnx: Option<&PathBuf>, compiled: Option<&PathBuf>) -> InferenceSource {
    match (compiled, onnx) {
        (Some(path), _) => InferenceSource::Existing(ModelInput::Compiled(path.clone())),
        (None, Some(path)) => InferenceSource::Existing(ModelInput::Onnx(path.clone())),
        (None, None) => InferenceSource::Exported,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagperf_core::precision::Precision;

    const WRITTEN: Option<Export> = Some(Export::Written);
    const LEFT_OUT: Option<Export> = Some(Export::LeftOut);

    fn of(compiler: bool, no_validation: bool, onnx: bool, compiled: bool) -> Result<Route, String> {
        route(&CaseSettings {
            batch_size: 1,
            flops: "1".to_owned(),
            flops_per_sample: 1.0,
            flops_per_multiply_add: None,
            precision: Precision::Fp32,
            compiler: compiler.then(|| "rten".to_owned()),
            num_workers: 1,
            prefetch: None,
            queue_delay_us: 0,
            search_loading: false,
            decoder: None,
            log_freq: 1,
            repeat: 1,
            no_validation,
            exist_onnx_path: onnx.then(|| "m.onnx".into()),
            exist_compiler_path: compiled.then(|| "m.engine".into()),
        })
        .map_err(|finding| finding.message)
    }

    #[test]
    fn each_of_the_sixteen_combinations_of_settings_has_the_route_in_the_table() {
        let route_of =
            |validate, infer, ignored: &[&'static str]| Ok(Route { validate, infer, ignored: ignored.to_vec() });
        let onnx = || Some(InferenceSource::Existing(ModelInput::Onnx("m.onnx".into())));
        let compiled = || Some(InferenceSource::Existing(ModelInput::Compiled("m.engine".into())));
        let nothing = || Err("`compiler: null` together with `no_validation: true` leaves nothing to do".to_owned());
        let no_model = || Err("`no_validation: true` needs `exist_onnx_path`".to_owned());
        // compiler, no_validation, exist_onnx_path, exist_compiler_path
        let table = [
            ((false, false, false, false), route_of(LEFT_OUT, None, &[])),
            ((false, false, false, true), route_of(LEFT_OUT, None, &["exist_compiler_path"])),
            ((false, false, true, false), route_of(LEFT_OUT, None, &["exist_onnx_path"])),
            ((false, false, true, true), route_of(LEFT_OUT, None, &["exist_onnx_path", "exist_compiler_path"])),
            ((false, true, false, false), nothing()),
            ((false, true, false, true), nothing()),
            ((false, true, true, false), nothing()),
            ((false, true, true, true), nothing()),
            ((true, false, false, false), route_of(WRITTEN, Some(InferenceSource::Exported), &[])),
            ((true, false, false, true), route_of(WRITTEN, compiled(), &[])),
            ((true, false, true, false), route_of(LEFT_OUT, onnx(), &[])),
            ((true, false, true, true), route_of(LEFT_OUT, compiled(), &[])),
            ((true, true, false, false), no_model()),
            ((true, true, false, true), no_model()),
            ((true, true, true, false), route_of(None, onnx(), &[])),
            ((true, true, true, true), route_of(None, compiled(), &[])),
        ];
        for ((compiler, no_validation, onnx, compiled), expected) in table {
            let options = (compiler, no_validation, onnx, compiled);
            assert_eq!(of(compiler, no_validation, onnx, compiled), expected, "{options:?}");
        }
    }
}
