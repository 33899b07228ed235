//! Adds a line to a vendor.yaml and keeps every other line as it is.

/// Adds an entry as the first one of a list, `compilers` or `frameworks`; `None` if it is not written as one line per entry.
pub fn add_entry(description: &str, list: &str, entry: &str) -> Option<String> {
    let lines: Vec<&str> = description.split_inclusive('\n').collect();
    let at = lines.iter().position(|line| begins_list(line, list))?;
    let content = |line: &&&str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
    let first = lines[at + 1..].iter().find(content).copied().unwrap_or_default();
    let indent = &first[..first.len() - first.trim_start().len()];
    let indent = if indent.is_empty() { "    " } else { indent };
    let (before, after) = (lines[..at].concat(), lines[at + 1..].concat());
    // Without entries, the list may be written `compilers: {}`.
    let heading = lines[at].replace("{}", "");
    let end = if heading.ends_with("\r\n") { "\r\n" } else { "\n" };
    Some(format!("{before}{}{end}{indent}{entry}{end}{after}", heading.trim_end()))
}

fn begins_list(line: &str, list: &str) -> bool {
    let value = line.strip_prefix(list).and_then(|rest| rest.strip_prefix(':'));
    let value = value.map(|value| value.split(" #").next().unwrap_or(value).trim());
    matches!(value, Some("" | "{}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_becomes_the_first_one_with_the_indentation_of_the_others() {
        for (before, after) in [
            (
                "a: 1\ncompilers:\n    # Note.\n  x: {}\nb: 2\n",
                "a: 1\ncompilers:\n  new: {}\n    # Note.\n  x: {}\nb: 2\n",
            ),
            ("compilers: {}\nb: 2\n", "compilers:\n    new: {}\nb: 2\n"),
            ("compilers: {} # none\n", "compilers:  # none\n    new: {}\n"),
            ("compilers:", "compilers:\n    new: {}\n"),
            ("compilers:\r\n  x: {}\r\n", "compilers:\r\n  new: {}\r\n  x: {}\r\n"),
        ] {
            assert_eq!(add_entry(before, "compilers", "new: {}").as_deref(), Some(after));
        }
    }

    #[test]
    fn a_list_in_braces_and_a_missing_list_have_no_place() {
        assert_eq!(
            add_entry("frameworks:\n    x: {}\n", "frameworks", "new: {}").unwrap(),
            "frameworks:\n    new: {}\n    x: {}\n"
        );
        for text in ["compilers: {x: {}}\n", "  compilers:\n", "frameworks:\n    x: {}\n", ""] {
            assert_eq!(add_entry(text, "compilers", "new: {}"), None, "{text}");
        }
    }
}
