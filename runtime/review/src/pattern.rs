//! Patterns of paths, keys and functions: whether a pattern matches, and which of two patterns is more specific.

use std::cmp::Reverse;
use std::collections::HashSet;

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
    /// The vendor.
    pub vendor: Option<String>,
    /// The case.
    pub case: Option<String>,
}

/// How specific a pattern is: of two patterns that match a path, the greater one decides.
pub type Specificity = (usize, Reverse<usize>, Reverse<usize>, Reverse<usize>);

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

    /// Returns how specific the pattern is: the more characters other than wildcards, then the fewer `**`, then the fewer
    /// `*`, then the fewer placeholders.
    pub fn specificity(&self) -> Specificity {
        let parts = || {
            self.segments.iter().flat_map(|segment| if let Segment::Name(parts) = segment { &parts[..] } else { &[] })
        };
        let number = |is: fn(&Part) -> bool| parts().filter(|part| is(part)).count();
        let folders = self.segments.iter().filter(|segment| **segment == Segment::Folders).count();
        (
            number(|part| matches!(part, Part::Character(_))) + self.segments.len() - folders,
            Reverse(folders),
            Reverse(number(|part| *part == Part::Anything)),
            Reverse(number(|part| matches!(part, Part::Placeholder(_)))),
        )
    }

    /// Returns whether some path matches both patterns. What a placeholder stands for is not compared.
    pub fn overlaps(&self, other: &Pattern) -> bool {
        segments_overlap(&self.segments, &other.segments)
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

fn segments_overlap(one: &[Segment], other: &[Segment]) -> bool {
    match (one, other) {
        ([], []) => true,
        // At the end, `**` needs a name.
        ([Segment::Folders], rest) | (rest, [Segment::Folders]) => !rest.is_empty(),
        ([Segment::Folders, after @ ..], rest) | (rest, [Segment::Folders, after @ ..]) => {
            segments_overlap(after, rest)
                || rest
                    .split_first()
                    .is_some_and(|(_, fewer)| segments_overlap(&[&[Segment::Folders], after].concat(), fewer))
        }
        ([Segment::Name(a), one @ ..], [Segment::Name(b), other @ ..]) => {
            names_overlap(a, b) && segments_overlap(one, other)
        }
        _ => false,
    }
}

/// A character of a pattern: one character or any number of them, and which.
#[derive(Clone, Copy)]
struct Token {
    character: Option<char>,
    is_name: bool,
    repeats: bool,
}

fn tokens(parts: &[Part]) -> Vec<Token> {
    let token = |character, is_name, repeats| Token { character, is_name, repeats };
    let of_part = |part: &Part| match part {
        Part::Character(character) => vec![token(Some(*character), false, false)],
        Part::Anything => vec![token(None, false, true)],
        Part::Placeholder(_) => vec![token(None, true, false), token(None, true, true)],
    };
    parts.iter().flat_map(of_part).collect()
}

/// Returns whether some name matches both sequences of parts.
fn names_overlap(one: &[Part], other: &[Part]) -> bool {
    let (one, other) = (tokens(one), tokens(other));
    let (mut pending, mut seen) = (vec![(0, 0)], HashSet::new());
    while let Some((i, j)) = pending.pop() {
        if !seen.insert((i, j)) {
            continue;
        }
        let (a, b) = (one.get(i), other.get(j));
        if a.is_none() && b.is_none() {
            return true;
        }
        pending.extend(a.filter(|a| a.repeats).map(|_| (i + 1, j)));
        pending.extend(b.filter(|b| b.repeats).map(|_| (i, j + 1)));
        if let (Some(a), Some(b)) = (a, b)
            && share_character(*a, *b)
        {
            pending.push((if a.repeats { i } else { i + 1 }, if b.repeats { j } else { j + 1 }));
        }
    }
    false
}

fn share_character(a: Token, b: Token) -> bool {
    match (a.character, b.character) {
        (Some(a), Some(b)) => a == b,
        (Some(a), None) => !b.is_name || is_name_character(a),
        (None, Some(b)) => !a.is_name || is_name_character(b),
        (None, None) => true,
    }
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
    fn the_pattern_with_more_fixed_characters_is_more_specific() {
        let specificity = |text| Pattern::parse(text).unwrap().specificity();
        for (more, less) in [
            ("scripts/lib/*", "scripts/<case>/*"),
            ("scripts/<case>/*", "scripts/<case>/**"),
            ("scripts/<case>/README.md", "scripts/<case>/*"),
            ("a/<case>/x", "a/*/x"),
            ("a", "**"),
        ] {
            assert!(specificity(more) > specificity(less), "{more} {less}");
        }
        assert_eq!(specificity("a/*/c"), specificity("a/c/*"));
    }

    #[test]
    fn patterns_overlap_if_a_path_matches_both() {
        for (one, other, expected) in [
            ("a/*/c", "a/c/*", true),
            ("a/*.rs", "a/*.yaml", false),
            ("a/x*", "a/*y", true),
            ("**", "a/b", true),
            ("a/**", "a", false),
            ("a/**/z", "a/z", true),
            ("**/z", "a/**", true),
            ("<vendor>", "a.b", false),
            ("<vendor>_x", "a*", true),
        ] {
            let [one, other] = [one, other].map(|text| Pattern::parse(text).unwrap());
            assert_eq!((one.overlaps(&other), other.overlaps(&one)), (expected, expected), "{one:?} {other:?}");
        }
    }

    #[test]
    fn texts_that_are_no_patterns_are_refused() {
        for text in ["", "/a", "a//b", "a/../b", "<host>", "a*b*c*d*e*f", "**/**/**/**/**/a"] {
            assert!(Pattern::parse(text).is_err(), "{text}");
        }
    }
}
