//! Functions of the package that are rows of a table, and their documentation for `scripts/api`.

use rhai::FuncRegistration;

/// The width of the lines of the documentation.
const LINE_WIDTH: usize = 114;

/// Begins the registration of the function `name` with its parameters (`axis: i64`), its text and an example. It returns
/// a tensor.
pub(super) fn documented(name: &str, parameters: &[&str], text: &str, example: &str) -> FuncRegistration {
    let mut comments: Vec<String> = lines(text).into_iter().map(|line| format!("/// {line}")).collect();
    comments.extend(["///", "/// ```rhai"].map(str::to_owned));
    comments.extend([format!("/// {example}"), "/// ```".to_owned()]);
    FuncRegistration::new(name)
        .in_global_namespace()
        .with_params_info(parameters.iter().chain(&["Tensor"]))
        .with_comments([comments.join("\n")])
}

/// Breaks text into lines.
fn lines(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut().filter(|line| line.len() + 1 + word.len() <= LINE_WIDTH) {
            Some(line) => *line = format!("{line} {word}"),
            None => lines.push(word.to_owned()),
        }
    }
    lines
}
