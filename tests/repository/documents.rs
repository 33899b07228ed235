//! The documents: every link leads somewhere, and the pages that a newcomer reads first are short.

use std::path::Path;

use crate::markdown;

/// The largest size of a document in KiB.
const SIZES_KIB: [(&str, usize); 2] = [("README.md", 10), ("ARCHITECTURE.md", 12)];

/// The largest number of lines of a page in docs/: two screens.
const LINES_MAX: usize = 100;

/// Returns the lines outside fenced blocks, each with its number.
fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut fenced = false;
    let mut found = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let fence = line.trim_start().starts_with("```");
        if !fence && !fenced {
            found.push((number, line));
        }
        fenced ^= fence;
    }
    found
}

/// Returns the anchor of a heading, as GitHub makes it.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

/// Returns whether a page has a heading with this anchor.
fn has_anchor(text: &str, name: &str) -> bool {
    let headings = prose(text).into_iter().filter(|(_, line)| line.starts_with('#'));
    headings.map(|(_, line)| anchor(line.trim_start_matches('#').trim())).any(|known| known == name)
}

/// Returns the targets of the links in a line; inline code has none.
fn targets(line: &str) -> Vec<String> {
    let text: String = line.split('`').step_by(2).collect();
    text.split("](").skip(1).map(|rest| rest.split(')').next().unwrap().to_owned()).collect()
}

/// Returns a message for each link of a page to a file or a heading that does not exist.
fn broken_links(page: &str, text: &str) -> Vec<String> {
    let leads_somewhere = |target: &str| {
        let (path, name) = target.split_once('#').unwrap_or((target, ""));
        let folder = Path::new(page).parent().unwrap();
        let file = if path.is_empty() { Path::new(page).to_owned() } else { folder.join(path) };
        let file = markdown::root().join(file);
        let own = path.is_empty().then(|| text.to_owned());
        let linked = || own.unwrap_or_else(|| std::fs::read_to_string(&file).unwrap_or_default());
        (path.is_empty() || file.exists()) && (name.is_empty() || has_anchor(&linked(), name))
    };
    let links =
        prose(text).into_iter().flat_map(|(number, line)| targets(line).into_iter().map(move |to| (number, to)));
    links
        .filter(|(_, target)| !target.contains("://") && !leads_somewhere(target))
        .map(|(number, target)| format!("{page}:{number} links to `{target}`, which does not exist"))
        .collect()
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let broken: Vec<String> =
        markdown::pages().iter().flat_map(|page| broken_links(page, &markdown::read(page))).collect();
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

#[test]
fn a_broken_link_is_found() {
    let broken = |text: &str| broken_links("docs/page.md", text);
    assert_eq!(
        broken("# A `b.c` d\n[a](../README.md) [b](#a-bc-d) [c](https://a/#b) `[d](e)`\n```\n[f](g)\n```\n"),
        [""; 0]
    );
    assert_eq!(
        broken("[a](../README.md#no-such-heading)\n[b](#c) [d](e.md)\n"),
        [
            "docs/page.md:1 links to `../README.md#no-such-heading`, which does not exist",
            "docs/page.md:2 links to `#c`, which does not exist",
            "docs/page.md:2 links to `e.md`, which does not exist"
        ]
    );
}

#[test]
fn the_readme_and_the_architecture_are_short() {
    for (page, kib) in SIZES_KIB {
        let bytes = markdown::read(page).len();
        assert!(bytes <= kib * 1024, "{page} has {bytes} bytes, more than {kib} KiB");
    }
}

#[test]
fn a_page_on_how_to_do_something_has_at_most_two_screens() {
    let of_docs = |page: &String| page.strip_prefix("docs/").is_some_and(|name| !name.contains('/'));
    for page in markdown::pages().into_iter().filter(of_docs) {
        let lines = markdown::read(&page).lines().count();
        assert!(lines <= LINES_MAX, "{page} has {lines} lines, more than {LINES_MAX}");
    }
}
