//! The questions and settings of a session, for forward functions.

use flagperf_plugin::Error;
use serde_json::{Value as Json, json};

use crate::gpu_engine::GpuEngine;
use crate::session::TensorRtSession;
use crate::shapes::Shapes;

const QUESTIONS: [&str; 4] = ["layers", "profiles", "shapes", "built_for"];
const SETTINGS: [&str; 1] = ["profile"];

/// Answers a question in JSON: `layers` (from TensorRT's inspector), `profiles` (with their shapes), `shapes` (the
/// current ones), or `built_for` (the engine's description).
///
/// # Errors
/// For an unknown question or any argument, and TensorRT's own errors.
pub fn ask(session: &mut TensorRtSession, question: &str, argument: &str) -> Result<String, Error> {
    if !QUESTIONS.contains(&question) {
        return Err(Error::unknown(question, &QUESTIONS));
    }
    if argument != "null" {
        return Err(option_error(question, format!("accepts no argument, but `{argument}` was given")));
    }
    let answer = match question {
        "layers" => return session.gpu_engine()?.layers(),
        "profiles" => {
            let profiles = session.description.as_ref().map(|description| &description.profiles);
            json!({ "profile": session.gpu_engine.as_ref().map(GpuEngine::profile), "profiles": profiles })
        }
        "shapes" => {
            let values = session.inputs.iter().map(|value| (value.name.clone(), value.sizes.clone()));
            let current = session.gpu_engine.as_ref().and_then(GpuEngine::shapes);
            json!(current.cloned().unwrap_or_else(|| values.collect::<Shapes>()))
        }
        _ => json!(session.description),
    };
    Ok(answer.to_string())
}

/// Changes a setting: `profile`, to the number of a profile.
///
/// # Errors
/// For an unknown setting or an invalid value, and TensorRT's own errors.
pub fn tune(session: &mut TensorRtSession, setting: &str, value: &str) -> Result<(), Error> {
    if !SETTINGS.contains(&setting) {
        return Err(Error::unknown(setting, &SETTINGS));
    }
    let index: Option<usize> =
        serde_json::from_str::<Json>(value).ok().as_ref().and_then(Json::as_u64).map(|n| n as usize);
    let gpu_engine = session.gpu_engine()?;
    let count = gpu_engine.profile_count()?;
    match index.filter(|index| *index < count) {
        Some(index) => gpu_engine.set_profile(index),
        None => {
            let profiles = if count == 1 { "1 profile".to_owned() } else { format!("{count} profiles") };
            Err(option_error(setting, format!("`{value}` is out of range: the engine has {profiles}, counted from 0")))
        }
    }
}

fn option_error(name: &str, reason: String) -> Error {
    Error::BadOption { option: name.to_owned(), reason }
}
