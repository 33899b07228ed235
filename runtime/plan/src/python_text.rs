//! Finds the attributes of `config` that the text of a Python file reads. Understands only comments, strings,
//! indentation and the first word of a line.

/// A read of an attribute of `config`, as in `config.batch_size` or `self.config.batch_size`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigRead {
    /// The attribute.
    pub key: String,
    /// Line, from 1.
    pub line: usize,
    /// Column, from 1.
    pub column: usize,
    /// Whether the class may run without this read: it is in a branch, a loop, a `try` or a function that the file does not
    /// call.
    pub is_conditional: bool,
}

/// The functions of a class that the adaptor calls.
const ENTRIES: [&str; 2] = ["__init__", "__call__"];
/// Words that begin a block which may be left out, and which may end early.
const BRANCHES: [&str; 8] = ["if", "elif", "else", "for", "while", "try", "except", "match"];
/// Words after which the rest of a line may not be evaluated.
const INLINE: [&str; 5] = ["if", "and", "or", "else", "lambda"];

/// Returns the reads of attributes of `config`, in the order of the text. One whose name the file also contains as a
/// string is left out: `hasattr(config, "shapes")` or `getattr` asks before it reads.
pub fn config_reads(source: &str) -> Vec<ConfigRead> {
    let code = without_text(source);
    if code.contains("import config") {
        return Vec::new();
    }
    let words: Vec<&str> = code.split(|c: char| !is_word(c)).collect();
    let is_called = |name: &str| ENTRIES.contains(&name) || words.iter().filter(|word| **word == name).count() > 1;
    let mut blocks: Vec<Block> = Vec::new();
    let mut reads = Vec::new();
    let mut brackets = 0_i64;
    for (number, line) in (1..).zip(code.lines()) {
        let content = line.trim_start();
        let indent = line.len() - content.len();
        let first = content.split(|c: char| !is_word(c)).next().unwrap_or_default();
        // A line that continues brackets or is empty belongs to the block before.
        let begins_statement = brackets == 0 && !content.is_empty();
        if begins_statement {
            blocks.retain(|block| block.indent < indent);
        }
        let is_branch = |block: &Block| block.is_branch || block.function.as_ref().is_some_and(|name| !is_called(name));
        let is_optional = blocks.iter().any(is_branch) || begins_statement && first == "elif";
        for (key, at) in attributes_of_config(line) {
            let is_inline =
                line[..at].trim_start().split(|c: char| !is_word(c)).skip(1).any(|word| INLINE.contains(&word));
            if !names_text(source, key) {
                let (key, column) = (key.to_owned(), at + 1);
                reads.push(ConfigRead { key, line: number, column, is_conditional: is_optional || is_inline });
            }
        }
        if begins_statement {
            let function = content.strip_prefix("async ").unwrap_or(content).strip_prefix("def ");
            let function = function.map(|rest| rest.split(|c: char| !is_word(c)).next().unwrap_or_default().to_owned());
            let is_branch = BRANCHES.contains(&first);
            if is_branch || function.is_some() {
                blocks.push(Block { indent, is_branch, function });
            }
        }
        brackets += line.chars().map(bracket_depth).sum::<i64>();
    }
    reads
}

/// Returns how often a Python file has a word outside comments and strings.
pub fn count_word(source: &str, word: &str) -> usize {
    without_text(source).split(|c: char| !is_word(c)).filter(|other| *other == word).count()
}

/// A block of lines that are indented more than its first line.
struct Block {
    indent: usize,
    is_branch: bool,
    /// The name of the function that it defines.
    function: Option<String>,
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn bracket_depth(c: char) -> i64 {
    match c {
        '(' | '[' | '{' => 1,
        ')' | ']' | '}' => -1,
        _ => 0,
    }
}

/// Returns whether the source contains a name as a string.
fn names_text(source: &str, name: &str) -> bool {
    source.contains(&format!("\"{name}\"")) || source.contains(&format!("'{name}'"))
}

/// Returns the attributes that a line reads from `config` or `self.config`, each with the position of `config`. What a tuple
/// itself has is no key.
fn attributes_of_config(line: &str) -> Vec<(&str, usize)> {
    const OBJECT: &str = "config";
    let mut found = Vec::new();
    for (at, _) in line.match_indices(OBJECT) {
        let (before, after) = (&line[..at], &line[at + OBJECT.len()..]);
        let owner = before.trim_end_matches(|c: char| is_word(c) || c == '.');
        let owner = &before[owner.len()..];
        let Some(attribute) = after.strip_prefix('.').filter(|_| owner.is_empty() || owner == "self.") else {
            continue;
        };
        let end = attribute.find(|c: char| !is_word(c)).unwrap_or(attribute.len());
        let (key, rest) = attribute.split_at(end);
        let rest = rest.trim_start();
        let is_assigned = rest.starts_with('=') && !rest.starts_with("==");
        let is_method = matches!(key, "count" | "index") && rest.starts_with('(');
        if !key.is_empty() && !key.starts_with('_') && !is_assigned && !is_method {
            found.push((key, at));
        }
    }
    found
}

/// Returns the source with every character of comments and strings replaced by a space; lines and columns stay.
fn without_text(source: &str) -> String {
    let bytes = source.as_bytes();
    let mut code = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let end = match rest[0] {
            b'#' => at + rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len()),
            b'"' | b'\'' => at + string_length(rest),
            byte => {
                code.push(byte);
                at += 1;
                continue;
            }
        };
        code.extend(bytes[at..end].iter().map(|byte| if *byte == b'\n' { b'\n' } else { b' ' }));
        at = end;
    }
    String::from_utf8(code).expect("characters are kept or replaced whole")
}

/// Returns the length of the string at the beginning of `text`, with its quotes. One without an end ends with its line, or
/// with the text if it has three quotes.
fn string_length(text: &[u8]) -> usize {
    let quote = text[0];
    let is_long = text.starts_with(&[quote; 3]);
    let mut at = if is_long { 3 } else { 1 };
    while at < text.len() {
        match text[at] {
            b'\\' => at += 1,
            b'\n' if !is_long => return at,
            byte if byte == quote && !is_long => return at + 1,
            _ if is_long && text[at..].starts_with(&[quote; 3]) => return at + 3,
            _ => {}
        }
        at += 1;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads(source: &str) -> Vec<(String, usize, bool)> {
        config_reads(source).into_iter().map(|read| (read.key, read.line, read.is_conditional)).collect()
    }

    fn read(key: &str, line: usize, is_conditional: bool) -> (String, usize, bool) {
        (key.to_owned(), line, is_conditional)
    }

    #[test]
    fn attributes_are_found_outside_comments_and_strings() {
        let source = "def __init__(self, config):\n    a = config.one  # config.two\n    b = self.config.three + \"config.four\"\n    \
                      '''\n    config.five\n    '''\n    torch._dynamo.config.six = 1\n    config._fields; config.index(3); \
                      config.seven = 1\n    config.eight == 2\n";
        assert_eq!(reads(source), [read("one", 2, false), read("three", 3, false), read("eight", 9, false)]);
        assert_eq!(config_reads(source)[1].column, 14);
    }

    #[test]
    fn a_read_in_a_branch_a_loop_a_try_or_after_a_condition_may_be_left_out() {
        let source = "def __init__(self, config):\n    if config.a:\n        config.b\n    elif config.c:\n        pass\n    \
                      config.d\n    for x in config.e:\n        f(\n    config.f)\n    with open(config.g):\n        config.h\n    \
                      y = config.i if config.j else 0\n    try:\n        config.k\n    except AttributeError:\n        pass\n";
        let expected = [
            read("a", 2, false),
            read("b", 3, true),
            read("c", 4, true),
            read("d", 6, false),
            read("e", 7, false),
            read("f", 9, true),
            read("g", 10, false),
            read("h", 11, false),
            read("i", 12, false),
            read("j", 12, true),
            read("k", 14, true),
        ];
        assert_eq!(reads(source), expected);
    }

    #[test]
    fn a_function_that_nothing_calls_may_be_left_out() {
        let source = "class InferModel:\n    def __init__(self, config):\n        self.build(config)\n    def build(self, config):\n        \
                      config.a\n    def unused(self, config):\n        config.b\n";
        assert_eq!(reads(source), [read("a", 5, false), read("b", 7, true)]);
    }

    #[test]
    fn a_key_that_the_file_asks_for_by_name_is_no_read() {
        assert_eq!(reads("if hasattr(config, 'a'): config.a\nconfig.b\n"), [read("b", 2, false)]);
        assert!(reads("from settings import config\nconfig.a\n").is_empty());
    }

    #[test]
    fn a_text_without_an_end_and_other_characters_are_read_to_the_end() {
        assert_eq!(reads("x = \"open\nconfig.a\n\"\"\"config.b\n"), [read("a", 2, false)]);
        assert_eq!(reads("größe = config.a; config.größe\n")[0], read("a", 1, false));
        assert_eq!(count_word("def f(onnx_path):  # onnx_path\n    'onnx_path'\n", "onnx_path"), 1);
    }
}
