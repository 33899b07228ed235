//! Patterns of paths, keys and functions.

/// Most wildcards in one name, and most `**` in one pattern: matching tries every way to place them.
const WILDCARDS_MAX: usize = 4;

/// A pattern such as `configs/<case>/vendor_config/<vendor>_configurations.yaml`.
///
/// `*` stands for any part of a name, `<vendor>` and `<case>` for one or more letters, digits, `_` and `-`, and `**` for
/// any number of folders; at the end, `**` stands for at least one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    text: String,
    segments: Vec<Segment>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Folders,
    Name(Vec<Part>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Character(char),
    Anything,
    Placeholder(Placeholder),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Placeholder {
    Vendor,
    Case,
}

/// The names for which the placeholders of a pattern stand in a path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bindings {
    pub vendor: Option<String>,
    pub case: Option<String>,
}

impl Pattern {
    /// Parses a pattern.
    ///
    /// # Errors
    /// When the text is no pattern; the error is the reason.
    pub fn parse(text: &str) -> Result<Pattern, String> {
        if text.is_empty() || text.split('/').any(|name| ["", ".", ".."].contains(&name)) {
            return Err(format!("`{text}` is no pattern: it needs names separated by `/`, such as `scripts/<case>/*`"));
        }
        let segments = text.split('/').map(Segment::parse).collect::<Result<Vec<_>, _>>()?;
        if segments.iter().filter(|segment| **segment == Segment::Folders).count() > WILDCARDS_MAX {
            return Err(format!("`{text}` has more than {WILDCARDS_MAX} `**`"));
        }
        Ok(Pattern { text: text.to_owned(), segments })
    }

    /// Returns the pattern as written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the names of the placeholders if the pattern matches a path.
    pub fn matches(&self, path: &str) -> Option<Bindings> {
        let names: Vec<&str> = path.split('/').collect();
        match_segments(&self.segments, &names, &Bindings::default())
    }

    /// Returns whether the pattern has the placeholder `<vendor>`.
    pub fn names_vendor(&self) -> bool {
        let vendor = Part::Placeholder(Placeholder::Vendor);
        self.segments.iter().any(|segment| matches!(segment, Segment::Name(parts) if parts.contains(&vendor)))
    }
}

impl Segment {
    fn parse(name: &str) -> Result<Segment, String> {
        if name == "**" {
            return Ok(Segment::Folders);
        }
        let (mut parts, mut rest) = (Vec::new(), name);
        while let Some(first) = rest.chars().next() {
            let placeholder = [("<vendor>", Placeholder::Vendor), ("<case>", Placeholder::Case)]
                .into_iter()
                .find_map(|(text, placeholder)| Some((rest.strip_prefix(text)?, Part::Placeholder(placeholder))));
            let (after, part) = match (placeholder, first) {
                (Some(found), _) => found,
                (None, '*') => (&rest[1..], Part::Anything),
                (None, '<' | '>') => {
                    return Err(format!("`{name}` has a placeholder other than `<vendor>` and `<case>`"));
                }
                (None, other) => (&rest[other.len_utf8()..], Part::Character(other)),
            };
            parts.push(part);
            rest = after;
        }
        if parts.iter().filter(|part| !matches!(part, Part::Character(_))).count() > WILDCARDS_MAX {
            return Err(format!("`{name}` has more than {WILDCARDS_MAX} wildcards"));
        }
        Ok(Segment::Name(parts))
    }
}

fn match_segments(segments: &[Segment], names: &[&str], bound: &Bindings) -> Option<Bindings> {
    match (segments, names) {
        ([], []) => Some(bound.clone()),
        ([Segment::Folders], names) => (!names.is_empty()).then(|| bound.clone()),
        ([Segment::Folders, rest @ ..], names) => {
            (0..=names.len()).find_map(|skipped| match_segments(rest, &names[skipped..], bound))
        }
        ([Segment::Name(parts), rest @ ..], [name, names @ ..]) => {
            let mut found = None;
            match_name(parts, name, bound, &mut |bound| {
                found = match_segments(rest, names, bound);
                found.is_some()
            });
            found
        }
        _ => None,
    }
}

/// Calls `accept` for each way in which the parts match a name, until it returns true. Longer texts come first.
fn match_name(parts: &[Part], name: &str, bound: &Bindings, accept: &mut dyn FnMut(&Bindings) -> bool) -> bool {
    let Some((part, rest)) = parts.split_first() else { return name.is_empty() && accept(bound) };
    let ends = name.char_indices().map(|(at, _)| at).chain([name.len()]).rev();
    match part {
        Part::Character(character) => {
            name.strip_prefix(*character).is_some_and(|name| match_name(rest, name, bound, accept))
        }
        Part::Anything => ends.into_iter().any(|end| match_name(rest, &name[end..], bound, accept)),
        Part::Placeholder(placeholder) => {
            let ends = ends.filter(|end| *end > 0 && name[..*end].chars().all(is_name_character));
            ends.into_iter().any(|end| {
                let mut bound = bound.clone();
                let place = match placeholder {
                    Placeholder::Vendor => &mut bound.vendor,
                    Placeholder::Case => &mut bound.case,
                };
                let is_same = place.get_or_insert_with(|| name[..end].to_owned()) == &name[..end];
                is_same && match_name(rest, &name[end..], &bound, accept)
            })
        }
    }
}

fn is_name_character(character: char) -> bool {
    character.is_ascii_alphanumeric() || ['_', '-'].contains(&character)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(pattern: &str, path: &str) -> Option<(Option<String>, Option<String>)> {
        let found = Pattern::parse(pattern).unwrap().matches(path)?;
        Some((found.vendor, found.case))
    }

    #[test]
    fn placeholders_stand_for_names_and_wildcards_for_the_rest() {
        let some = |name: &str| Some(name.to_owned());
        let overlay = "configs/<case>/vendor_config/<vendor>_configurations.yaml";
        assert_eq!(
            bound(overlay, "configs/tiny/vendor_config/my_chip_configurations.yaml"),
            Some((some("my_chip"), some("tiny")))
        );
        assert_eq!(bound(overlay, "configs/tiny/vendor_config/_configurations.yaml"), None);
        assert_eq!(bound("vendors/<vendor>/**", "vendors/acme/a/b.rs"), Some((some("acme"), None)));
        for (pattern, path, expected) in [
            ("vendors/<vendor>/**", "vendors/acme", false),
            ("vendors/<vendor>/**", "vendors/README.md/x", false),
            ("vendors/<vendor>/**", "Vendors/acme/x", false),
            ("**", "a", true),
            ("**/x", "x", true),
            ("**/x", "a/b/x", true),
            ("a/**/x", "a/x", true),
            ("a/*.rhai", "a/b.rhai", true),
            ("a/*.rhai", "a/b/c.rhai", false),
            ("<case>/<case>", "a/a", true),
            ("<case>/<case>", "a/b", false),
        ] {
            assert_eq!(bound(pattern, path).is_some(), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn texts_that_are_no_patterns_are_refused() {
        for text in ["", "/a", "a//b", "a/../b", "<host>", "a*b*c*d*e*f", "**/**/**/**/**/a"] {
            assert!(Pattern::parse(text).is_err(), "{text}");
        }
    }
}
