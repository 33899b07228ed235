//! Fills the templates of this crate. What a template prints is escaped, because its name ends in `.html` or `.xml`.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Serde, Value};
use minijinja::{Environment, UndefinedBehavior};
use serde::Serialize;

use super::words::Language;

/// Why nothing here can fail: templates and values are part of this program, and its tests fill each template.
const OWN: &str = "a template of this program is well-formed and has all its values";

/// Fills a template with the fields of `values`.
pub(super) fn fill(name: &'static str, template: &'static str, values: impl Serialize, language: Language) -> String {
    let mut environment = Environment::new();
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build().expect(OWN));
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.add_function("word", move |english: String| language.word(&english).to_owned());
    environment.add_function("sentence", move |english: String, value: String| language.sentence(&english, &[&value]));
    environment.add_template(name, template).expect(OWN);
    environment.get_template(name).expect(OWN).render(Value::from(Serde(values))).expect(OWN)
}
