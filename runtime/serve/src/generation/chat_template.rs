//! The form of a conversation: a template in Jinja, as it is published with a model.

use std::fmt::Write as _;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Value;
use minijinja::{Environment, Error, ErrorKind, context};

/// The most steps of a template: one takes some for each message and each part of its own text.
const FUEL: u64 = 1_000_000;
/// The most bytes of a conversation's text.
const TEXT_BYTES_MAX: usize = 16 << 20;

/// A message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Who says it: `system`, `user`, `assistant` or another word that the template knows.
    pub role: String,
    /// What is said.
    pub content: String,
}

/// Why a conversation has no text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// The template refuses the conversation in its own words.
    #[error("the chat template refuses the messages: {0}")]
    Refused(String),
    /// The template is wrong, or takes too long.
    #[error("the chat template fails: {0}")]
    Failed(String),
}

/// A chat template with the tokens that it may insert.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    bos_token: Option<String>,
    eos_token: Option<String>,
}

impl ChatTemplate {
    /// Parses a template.
    ///
    /// # Errors
    /// When it is not one.
    pub fn new(source: String, bos_token: Option<String>, eos_token: Option<String>) -> Result<Self, String> {
        let mut environment = Environment::new();
        // As transformers renders templates.
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(|error| describe(&error))?);
        environment.set_fuel(Some(FUEL));
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, message))
        });
        environment.add_function("strftime_now", |format: String| jiff::Zoned::now().strftime(&format).to_string());
        environment.add_template_owned(NAME, source).map_err(|error| describe(&error))?;
        Ok(ChatTemplate { environment, bos_token, eos_token })
    }

    /// Returns the text of a conversation up to the beginning of the next answer.
    ///
    /// # Errors
    /// When the template refuses the messages or fails.
    pub fn render(&self, messages: &[Message]) -> Result<String, TemplateError> {
        let failed = |error: Error| match error.kind() {
            ErrorKind::InvalidOperation => {
                TemplateError::Refused(error.detail().map_or_else(|| describe(&error), str::to_owned))
            }
            _ => TemplateError::Failed(describe(&error)),
        };
        let template = self.environment.get_template(NAME).map_err(failed)?;
        let message =
            |message: &Message| context! { role => message.role.as_str(), content => message.content.as_str() };
        let variables = context! {
            messages => messages.iter().map(message).collect::<Vec<Value>>(),
            add_generation_prompt => true,
            bos_token => self.bos_token.as_deref(),
            eos_token => self.eos_token.as_deref(),
        };
        let mut text = LimitedText(Vec::new());
        template.render_captured_to(variables, &mut text).map_err(failed)?;
        String::from_utf8(text.0).map_err(|error| TemplateError::Failed(error.to_string()))
    }
}

/// The name of the only template.
const NAME: &str = "chat_template";

/// Describes an error with its line.
fn describe(error: &Error) -> String {
    let mut text = error.to_string();
    if let Some(line) = error.line().filter(|_| !text.contains("line")) {
        let _ = write!(text, " in line {line}");
    }
    text
}

/// Text with a largest size.
struct LimitedText(Vec<u8>);

impl std::io::Write for LimitedText {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.0.len() + bytes.len() > TEXT_BYTES_MAX {
            return Err(std::io::Error::other(format!("the text is longer than {TEXT_BYTES_MAX} bytes")));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The template of SmolLM2-Instruct.
    const SMOLLM2: &str = "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

    fn render(source: &str, messages: &[(&str, &str)]) -> Result<String, String> {
        let template = ChatTemplate::new(source.to_owned(), Some("<s>".to_owned()), Some("</s>".to_owned()))?;
        let message =
            |(role, content): &(&str, &str)| Message { role: (*role).to_owned(), content: (*content).to_owned() };
        let messages: Vec<Message> = messages.iter().map(message).collect();
        template.render(&messages).map_err(|error| error.to_string())
    }

    #[test]
    fn a_published_template_is_rendered_as_transformers_does() {
        let text = render(SMOLLM2, &[("user", "Hi {{ 1 }}"), ("assistant", "Yes"), ("user", "<b>?")]).unwrap();
        let expected = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n\
            <|im_start|>user\nHi {{ 1 }}<|im_end|>\n<|im_start|>assistant\nYes<|im_end|>\n<|im_start|>user\n<b>?<|im_end|>\n\
            <|im_start|>assistant\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn blocks_are_trimmed_and_methods_of_python_work() {
        let source = "{{ bos_token }}\n{% for m in messages %}\n  {% if m.content.startswith('a') %}\n{{ m['content'].strip() | upper }}{{ eos_token }}\n  {% endif %}\n{% endfor %}\n";
        assert_eq!(render(source, &[("user", "a b "), ("user", "c")]).unwrap(), "<s>\nA B</s>\n");
    }

    #[test]
    fn a_template_can_refuse_and_cannot_compute_without_end() {
        let refusing = "{{ raise_exception('roles must alternate') }}";
        assert_eq!(render(refusing, &[]).unwrap_err(), "the chat template refuses the messages: roles must alternate");
        let endless = "{% for i in range(100000) %}{% for j in range(100000) %}x{% endfor %}{% endfor %}";
        assert!(render(endless, &[]).unwrap_err().starts_with("the chat template fails: "));
        assert!(render("{% if %}", &[]).unwrap_err().contains("line 1"));
    }
}
