//! What a forward function may ask and tune.

use flagperf_plugin::Error;
use serde_json::{Value as Json, json};

use crate::session::TensorRtSession;
use crate::shapes::Shapes;

const QUESTIONS: [&str; 4] = ["layers", "profiles", "shapes", "built_for"];
const SETTINGS: [&str; 1] = ["profile"];

/// Answers in JSON: `layers` as TensorRT's inspector has them, `profiles` with the shapes of each, `shapes` as they are
/// set now, and what the engine was `built_for`.
///
/// # Errors
/// An unknown question, an argument, or what TensorRT says.
pub fn ask(session: &mut TensorRtSession, question: &str, argument: &str) -> Result<String, Error> {
    if !QUESTIONS.contains(&question) {
        return Err(Error::unknown(question, &QUESTIONS));
    }
    if argument != "null" {
        return Err(refuse(question, format!("takes no argument, `{argument}` was given")));
    }
    let answer = match question {
        "layers" => return session.running()?.layers(),
        "profiles" => {
            let profiles = session.description.as_ref().map(|description| &description.profiles);
            json!({ "profile": session.running.as_ref().map(|running| running.profile()), "profiles": profiles })
        }
        "shapes" => {
            let values = session.inputs.iter().map(|value| (value.name.clone(), value.sizes.clone()));
            let set = session.running.as_ref().and_then(|running| running.shapes());
            json!(set.cloned().unwrap_or_else(|| values.collect::<Shapes>()))
        }
        _ => json!(session.description),
    };
    Ok(answer.to_string())
}

/// `profile` takes the number of a profile.
///
/// # Errors
/// An unknown setting, a value that it does not take, or what TensorRT says.
pub fn tune(session: &mut TensorRtSession, setting: &str, value: &str) -> Result<(), Error> {
    if !SETTINGS.contains(&setting) {
        return Err(Error::unknown(setting, &SETTINGS));
    }
    let index: Option<usize> =
        serde_json::from_str::<Json>(value).ok().as_ref().and_then(Json::as_u64).map(|n| n as usize);
    let running = session.running()?;
    let count = running.profile_count()?;
    match index.filter(|index| *index < count) {
        Some(index) => running.set_profile(index),
        None => Err(refuse(setting, format!("`{value}` is none of the engine's {count} profiles, which count from 0"))),
    }
}

fn refuse(name: &str, reason: String) -> Error {
    Error::BadOption { option: name.to_owned(), reason }
}
