//! Each README in Chinese has the structure of its original: the same headings, fenced lines, and tables with the same
//! code. What the sentences say is not checked.

#![expect(clippy::unwrap_used, reason = "test helpers may panic, too")]

use std::fs;
use std::path::Path;

/// The folders whose README exists in both languages.
const FOLDERS: [&str; 5] = ["", "runtime/plugin", "runtime/sidecar", "scripts", "vendors"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns both texts of a folder: English, Chinese.
fn texts(folder: &str) -> [String; 2] {
    ["README.md", "README.zh.md"].map(|name| fs::read_to_string(root().join(folder).join(name)).unwrap())
}

/// Returns the folders below `folder` that contain a README.zh.md, sorted.
fn translated(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let name = path.file_name().unwrap().to_str().unwrap_or_default();
        // Git's files, virtual environments, and what builds and runs write.
        let skipped = name.starts_with('.') || ["target", "result", "node_modules"].contains(&name);
        if path.is_dir() && !path.is_symlink() && !skipped {
            found.extend(translated(&path));
        } else if name == "README.zh.md" {
            found.push(folder.strip_prefix(root()).unwrap().to_str().unwrap().to_owned());
        }
    }
    found.sort();
    found
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

/// Returns a message for the first element in which the texts of a folder differ.
fn difference(folder: &str, [english, chinese]: [&str; 2]) -> Option<String> {
    let [english, chinese] = [english, chinese].map(elements);
    let at = (0..english.len().max(chinese.len())).find(|at| {
        let [english, chinese] = [&english, &chinese].map(|elements| elements.get(*at).map(|(_, element)| element));
        english != chinese
    })?;
    let [original, translation] = [("README.md", english), ("README.zh.md", chinese)].map(|(name, elements)| {
        let file = Path::new(folder).join(name).display().to_string();
        elements.get(at).map_or(format!("{file} ends"), |(line, element)| format!("{file}:{line} has {element}"))
    });
    Some(format!("{translation}, but {original}"))
}

#[test]
fn exactly_these_folders_have_a_readme_in_chinese() {
    assert_eq!(translated(root()), FOLDERS, "the folders with a README.zh.md (left) are not FOLDERS (right)");
}

#[test]
fn each_translation_has_the_structure_of_its_original() {
    let texts = FOLDERS.map(|folder| (folder, texts(folder)));
    let found = texts.iter().filter_map(|(folder, [english, chinese])| difference(folder, [english, chinese]));
    let found: Vec<_> = found.collect();
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn the_readmes_link_to_each_other_and_translations_link_to_translations() {
    for folder in FOLDERS {
        let [english, chinese] = texts(folder);
        assert_eq!(english.lines().nth(2), Some("[中文](README.zh.md)"), "line 3 of the README.md in `{folder}`");
        assert_eq!(chinese.lines().nth(2), Some("[English](README.md)"), "line 3 of the README.zh.md in `{folder}`");
        let links = chinese.split("](").skip(2).map(|rest| rest.split(')').next().unwrap());
        for link in links.filter(|link| !link.contains("://")) {
            let target = root().join(folder).join(link);
            assert!(target.exists(), "the README.zh.md in `{folder}` links to `{link}`, which does not exist");
            let translated = link.ends_with("README.md") && target.with_file_name("README.zh.md").exists();
            assert!(!translated, "the README.zh.md in `{folder}` links to `{link}`, which has a README.zh.md");
        }
    }
}

#[test]
fn a_different_structure_is_found() {
    let english = "# A\n\n| `a` \\| `b` | c |\n|---|---|\n\n```sh\nrun  # it\n```\n";
    let check = |from, to| difference("x", [english, &english.replacen(from, to, 1)]).unwrap_or_default();
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
