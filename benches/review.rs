//! Times `flagperf review` of a range with many changed files: opening the repository, comparing the two trees, and the
//! review itself, each time from the beginning.
//!
//!     cargo bench --bench review -- [FILES [TURNS]]     1,000 files and 5 turns by default
//!
//! A quarter of the files are scripts, a quarter overlays, a quarter renamed with changed content, the rest other files.

#[path = "../tests/support/repository.rs"]
mod repository;

use std::error::Error;
use std::sync::Arc;

use flagperf_core::measure::{Clock, MonotonicClock};
use flagperf_history::{Range, Repository};
use flagperf_review::{Policy, ReviewRequest, Snapshot, review};
use flagperf_script::ScriptParser;
use repository::{NewEntry, TestRepository, gone, text};

fn main() -> Result<(), Box<dyn Error>> {
    // `cargo bench` appends `--bench`.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let number = |place: usize, default: usize| arguments.get(place).map_or(Ok(default), |text| text.parse());
    let (files, turns) = (number(0, 1000)?, number(1, 5)?);
    let repository = make_repository(files);
    let clock = MonotonicClock::start();
    for _ in 0..turns {
        let begin = clock.now();
        let opened = Repository::open(repository.path())?;
        let compared = opened.compare(&Range::parse(Some("main..topic")))?;
        let after_comparison = clock.now();
        let policy = Policy::parse(&compared.before.text("review.yaml")?)?;
        let parser = ScriptParser::new(Arc::new(clock));
        let found = review(&ReviewRequest {
            policy: &policy,
            before: &compared.before,
            after: &compared.after,
            changes: &compared.changes,
            role: None,
            parser: &parser,
        });
        let end = clock.now();
        println!(
            "{} changed files, {} findings: {:.3} s ({:.3} s to compare the trees)",
            found.changed_files,
            found.findings.len(),
            end.since(begin).0,
            after_comparison.since(begin).0
        );
    }
    Ok(())
}

/// Creates a repository whose branch `topic` changes `files` files of `main`.
fn make_repository(files: usize) -> TestRepository {
    let repository = TestRepository::new();
    let name = |at: usize| match at % 4 {
        0 => format!("scripts/case{at}/forward.rhai"),
        1 => format!("configs/case{at}/vendor_config/acme_configurations.yaml"),
        2 => format!("vendors/acme/source{at}.py"),
        _ => format!("runtime/module{at}.rs"),
    };
    let content = |at: usize, version: usize| match at % 4 {
        0 => format!(
            "fn model_forward(model, batch) {{\n    let x = batch.images * {version};\n    model.run([x])[0]\n}}\n{}",
            (0..20)
                .map(|n| format!("fn f{n}(a) {{ if a > {at} {{ a + {n} }} else {{ [a, {n}].len }} }}\n"))
                .collect::<String>()
        ),
        1 => (0..20).map(|key| format!("key{key}: {}\n", key + at * usize::from(key < 18 || version == 1))).collect(),
        _ => (0..100)
            .map(|line| format!("line {line} of file {at} {}\n", if line == 50 { version } else { 0 }))
            .collect(),
    };
    let policy = include_str!("../review.yaml");
    let before: Vec<(String, String)> = (0..files).map(|at| (name(at), content(at, 1))).collect();
    let mut entries: Vec<NewEntry<'_>> = before.iter().map(|(path, content)| text(path, content)).collect();
    entries.push(text("review.yaml", policy));
    let main = repository.commit("main", &[], &entries);
    let path = |at: usize| if at % 4 == 2 { name(at).replace("source", "moved") } else { name(at) };
    let after: Vec<(String, String)> = (0..files).map(|at| (path(at), content(at, 2))).collect();
    let mut entries: Vec<NewEntry<'_>> = after.iter().map(|(path, content)| text(path, content)).collect();
    entries.extend((0..files).filter(|at| at % 4 == 2).map(|at| gone(&before[at].0)));
    repository.commit("topic", &[main], &entries);
    repository
}
