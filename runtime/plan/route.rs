//! Which of the seven steps are gone through: the four options that steer a case.

use std::path::PathBuf;

use super::{ModelInput, PlanProblem, Settings};

/// What a case does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The framework validates; the flag says whether the model is exported.
    pub validate: Option<Export>,
    /// The compiler infers, on this.
    pub infer: Option<Source>,
    /// Options that mean nothing here.
    pub ignored: Vec<&'static str>,
}

/// Whether validation ends with an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Export {
    /// Step d is gone through.
    Written,
    /// Step d is left out.
    LeftOut,
}

/// What inference loads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The file that validation exported.
    Exported,
    /// A file that was there.
    Existing(ModelInput),
}

/// The route of a case by its options.
///
/// # Errors
/// [`PlanProblem::NothingToDo`] and [`PlanProblem::NoModel`].
pub fn route(settings: &Settings) -> Result<Route, PlanProblem> {
    let Settings { compiler, no_validation, exist_onnx_path, exist_compiler_path, .. } = settings;
    if compiler.is_none() {
        if *no_validation {
            return Err(PlanProblem::NothingToDo);
        }
        let ignored = [("exist_onnx_path", exist_onnx_path), ("exist_compiler_path", exist_compiler_path)];
        let ignored = ignored.into_iter().filter(|(_, path)| path.is_some()).map(|(key, _)| key).collect();
        return Ok(Route { validate: Some(Export::LeftOut), infer: None, ignored });
    }
    if *no_validation && exist_onnx_path.is_none() {
        return Err(PlanProblem::NoModel);
    }
    let export = if exist_onnx_path.is_none() { Export::Written } else { Export::LeftOut };
    Ok(Route {
        validate: (!no_validation).then_some(export),
        infer: Some(source(exist_onnx_path.as_ref(), exist_compiler_path.as_ref())),
        ignored: Vec::new(),
    })
}

fn source(onnx: Option<&PathBuf>, compiled: Option<&PathBuf>) -> Source {
    match (compiled, onnx) {
        (Some(path), _) => Source::Existing(ModelInput::Compiled(path.clone())),
        (None, Some(path)) => Source::Existing(ModelInput::Onnx(path.clone())),
        (None, None) => Source::Exported,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITTEN: Option<Export> = Some(Export::Written);
    const LEFT_OUT: Option<Export> = Some(Export::LeftOut);

    fn of(compiler: bool, no_validation: bool, onnx: bool, compiled: bool) -> Result<Route, PlanProblem> {
        route(&Settings {
            batch_size: 1,
            flops: "1".to_owned(),
            flops_per_sample: 1.0,
            fp16: false,
            compiler: compiler.then(|| "rten".to_owned()),
            num_workers: 1,
            log_freq: 1,
            repeat: 1,
            no_validation,
            exist_onnx_path: onnx.then(|| "m.onnx".into()),
            exist_compiler_path: compiled.then(|| "m.engine".into()),
        })
    }

    #[test]
    fn all_sixteen_combinations_of_the_four_options_go_the_way_of_the_table() {
        let goes = |validate, infer, ignored: &[&'static str]| Ok(Route { validate, infer, ignored: ignored.to_vec() });
        let onnx = || Some(Source::Existing(ModelInput::Onnx("m.onnx".into())));
        let compiled = || Some(Source::Existing(ModelInput::Compiled("m.engine".into())));
        let nothing = || Err(PlanProblem::NothingToDo);
        let no_model = || Err(PlanProblem::NoModel);
        // compiler, no_validation, exist_onnx_path, exist_compiler_path
        let table = [
            ((false, false, false, false), goes(LEFT_OUT, None, &[])),
            ((false, false, false, true), goes(LEFT_OUT, None, &["exist_compiler_path"])),
            ((false, false, true, false), goes(LEFT_OUT, None, &["exist_onnx_path"])),
            ((false, false, true, true), goes(LEFT_OUT, None, &["exist_onnx_path", "exist_compiler_path"])),
            ((false, true, false, false), nothing()),
            ((false, true, false, true), nothing()),
            ((false, true, true, false), nothing()),
            ((false, true, true, true), nothing()),
            ((true, false, false, false), goes(WRITTEN, Some(Source::Exported), &[])),
            ((true, false, false, true), goes(WRITTEN, compiled(), &[])),
            ((true, false, true, false), goes(LEFT_OUT, onnx(), &[])),
            ((true, false, true, true), goes(LEFT_OUT, compiled(), &[])),
            ((true, true, false, false), no_model()),
            ((true, true, false, true), no_model()),
            ((true, true, true, false), goes(None, onnx(), &[])),
            ((true, true, true, true), goes(None, compiled(), &[])),
        ];
        for ((compiler, no_validation, onnx, compiled), expected) in table {
            let options = (compiler, no_validation, onnx, compiled);
            assert_eq!(of(compiler, no_validation, onnx, compiled), expected, "{options:?}");
        }
    }
}
