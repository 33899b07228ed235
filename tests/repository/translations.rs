//! Pages in Chinese: those for users have one, and each has the structure of its original: the same headings, fenced lines,
//! and tables with the same code. What the sentences say is not checked.

use std::path::Path;

use crate::markdown;

/// Returns whether a page in English must have one in Chinese: every page on how to do something, and those in the list.
fn is_translated(page: &str) -> bool {
    const OTHERS: [&str; 10] = [
        "README.md",
        "ARCHITECTURE.md",
        "configs/README.md",
        "datasets/README.md",
        "docker_images/README.md",
        "runtime/plugin/README.md",
        "runtime/sidecar/PROTOCOL.md",
        "runtime/sidecar/README.md",
        "scripts/README.md",
        "vendors/README.md",
    ];
    OTHERS.contains(&page) || page.strip_prefix("docs/").is_some_and(|name| !name.contains('/'))
}

/// Returns the path of the page in Chinese: that of `a/b.md` is `a/b.zh.md`.
fn translation(page: &str) -> String {
    format!("{}.zh.md", page.strip_suffix(".md").unwrap())
}

/// Returns the pages in English that must have one in Chinese.
fn originals() -> Vec<String> {
    markdown::pages().into_iter().filter(|page| !page.ends_with(".zh.md") && is_translated(page)).collect()
}

/// Returns the inline code of each cell of a row, sorted because the order of words differs. `\|` is text.
fn row(line: &str) -> String {
    let line = line.replace(r"\|", "\0");
    let cells = line.trim().trim_matches('|').split('|').map(|cell| {
        let mut code: Vec<_> = cell.split('`').skip(1).step_by(2).map(|code| format!("`{code}`")).collect();
        code.sort();
        code.join(" ")
    });
    format!("a row with the code | {} |", cells.collect::<Vec<_>>().join(" | ")).replace('\0', r"\|")
}

/// Returns what must be the same in both languages, in order: each element with the number of its line.
fn elements(text: &str) -> Vec<(usize, String)> {
    let mut fenced = false;
    let mut found = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let fence = line.trim_start().starts_with("```");
        if fence || fenced {
            found.push((number, format!("the fenced line `{line}`")));
        } else if line.starts_with('#') {
            found.push((number, format!("a heading of level {}", line.chars().take_while(|c| *c == '#').count())));
        } else if line.trim_start().starts_with('|') {
            found.push((number, row(line)));
        }
        fenced ^= fence;
    }
    found
}

/// Returns a message for the first element in which the two texts of a page differ.
fn difference(page: &str, [english, chinese]: [&str; 2]) -> Option<String> {
    let [english, chinese] = [english, chinese].map(elements);
    let at = (0..english.len().max(chinese.len())).find(|at| {
        let [english, chinese] = [&english, &chinese].map(|elements| elements.get(*at).map(|(_, element)| element));
        english != chinese
    })?;
    let [original, translation] = [(page.to_owned(), english), (translation(page), chinese)].map(|(file, elements)| {
        elements.get(at).map_or(format!("{file} ends"), |(line, element)| format!("{file}:{line} has {element}"))
    });
    Some(format!("{translation}, but {original}"))
}

#[test]
fn exactly_the_pages_for_users_have_one_in_chinese() {
    let expected: Vec<String> = originals().iter().map(|page| translation(page)).collect();
    let found: Vec<String> = markdown::pages().into_iter().filter(|page| page.ends_with(".zh.md")).collect();
    let missing: Vec<_> = expected.iter().filter(|page| !found.contains(page)).collect();
    let unexpected: Vec<_> = found.iter().filter(|page| !expected.contains(page)).collect();
    assert!(missing.is_empty() && unexpected.is_empty(), "missing: {missing:?}; without an original: {unexpected:?}");
}

#[test]
fn each_translation_has_the_structure_of_its_original() {
    let found = originals()
        .into_iter()
        .filter_map(|page| difference(&page, [&markdown::read(&page), &markdown::read(&translation(&page))]));
    let found: Vec<_> = found.collect();
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn the_two_pages_link_to_each_other_and_translations_link_to_translations() {
    let name = |page: &str| Path::new(page).file_name().unwrap().to_str().unwrap().to_owned();
    for page in originals() {
        let (english, chinese) = (markdown::read(&page), markdown::read(&translation(&page)));
        let links = [format!("[中文]({})", name(&translation(&page))), format!("[English]({})", name(&page))];
        assert_eq!([&english, &chinese].map(|text| text.lines().nth(2)), links.each_ref().map(|link| Some(&**link)));
        let links = chinese.split("](").skip(2).map(|rest| rest.split([')', '#']).next().unwrap());
        for link in links.filter(|link| link.ends_with(".md") && !link.ends_with(".zh.md")) {
            let target = markdown::root().join(&page).parent().unwrap().join(translation(link));
            assert!(!target.exists(), "{} links to `{link}`, which has a page in Chinese", translation(&page));
        }
    }
}

#[test]
fn a_different_structure_is_found() {
    let english = "# A\n\n| `a` \\| `b` | c |\n|---|---|\n\n```sh\nrun  # it\n```\n";
    let check = |from, to| difference("x/README.md", [english, &english.replacen(from, to, 1)]).unwrap_or_default();
    assert_eq!(check("A", "甲"), "");
    assert_eq!(check("| c |", "| 丙 |"), "");
    assert_eq!(
        check("# A", "## A"),
        "x/README.zh.md:1 has a heading of level 2, but x/README.md:1 has a heading of level 1"
    );
    let row = "has a row with the code | `a` `b` |  |";
    assert_eq!(
        check("`a`", "`c`"),
        format!("x/README.zh.md:3 has a row with the code | `b` `c` |  |, but x/README.md:3 {row}")
    );
    assert!(check(" c |", "|").ends_with(row), "a lost column");
    assert!(check("|---|---|\n", "").starts_with("x/README.zh.md:5 has the fenced line ````sh`, but"), "a lost row");
    assert!(check("# it", "# 运行").contains("has the fenced line `run  # 运行`, but"));
    assert!(check("```\n", "```\n# B\n").contains("level 1"), "a heading that only one text has");
    assert!(check("run  # it\n```\n", "").ends_with("x/README.md:7 has the fenced line `run  # it`"));
}
