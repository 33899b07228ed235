//! `flagperf site`: results as static pages.

use std::collections::BTreeSet;
use std::io::{self, Write as _};
use std::num::NonZero;
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use clap::{Args, ValueHint};
use flagperf_comparison::UnusedResult;
use flagperf_core::exit_code;
use flagperf_core::file::create;
use flagperf_core::regular_file::read_regular_text;
use flagperf_page::{ReadResult, Site, without_copies};
use flagperf_verify::find_results_of_runs;

use super::output::{check_outside, counted, print_message, print_mistake, print_result};
use super::report::{PageLanguage, read_summaries};
use super::verify::checkout_trust;

/// The file in a site that lists the others, so that a folder with other files is not taken for one.
const LIST: &str = ".flagperf-site";
/// Largest size of that file.
const LIST_BYTES_MAX: u64 = 64 << 20;

#[derive(Debug, Args)]
pub(super) struct SiteArguments {
    /// Folders of cases or of runs, or folders that contain any of them
    #[arg(required = true, value_hint = ValueHint::AnyPath)]
    results: Vec<PathBuf>,
    /// The folder of the site: a new or empty one, or one that this command has written, whose pages are replaced
    #[arg(required = true, value_name = "DIR", value_hint = ValueHint::DirPath)]
    site: PathBuf,
    /// The language of the pages
    #[arg(long, value_name = "LANGUAGE", value_enum, default_value = "en")]
    language: PageLanguage,
}

/// Writes a site of results.
pub(super) fn site(arguments: &SiteArguments) -> anyhow::Result<ExitCode> {
    Ok(match write_site(arguments) {
        Ok((text, code)) => print_result(&text, code),
        Err(message) => print_mistake(&message),
    })
}

fn write_site(arguments: &SiteArguments) -> Result<(String, u8), String> {
    let root = &arguments.site;
    let old = old_files(root)?;
    let trust = checkout_trust()?;
    let mut paths = Vec::new();
    for path in &arguments.results {
        paths.extend(find_results_of_runs(path).map_err(|error| format!("`{}`: {error}", path.display()))?);
    }
    // In the folder of a result, a site would make it another than its manifest says.
    paths.iter().filter(|path| path.is_dir()).try_for_each(|path| check_outside(root, path))?;
    let read = in_parallel(paths.len(), |index| {
        let result = ReadResult::read(&paths[index])?;
        let check = result.check(&trust);
        Ok((result, check))
    });
    let (results, unread): (Vec<_>, Vec<Result<_, UnusedResult>>) = read.into_iter().partition(Result::is_ok);
    let results = without_copies(results.into_iter().flatten().collect());
    for message in unread.iter().filter_map(|result| result.as_ref().err()) {
        print_message(&format!("warning: left out: {message}"));
    }
    if results.is_empty() {
        return Err("no result can be read, so there is nothing to write".to_owned());
    }
    let code = if unread.is_empty() { exit_code::OK } else { exit_code::FAILED };
    let (summaries, code) = read_summaries(results.iter().map(|(result, _)| result), code);
    let site = Site::new(&results, &summaries, arguments.language.into());
    let failed = |path: &Path, error: io::Error| format!("cannot write `{}`: {error}", path.display());
    let written = in_parallel(site.page_count(), |index| {
        let page = site.page(index);
        let path = root.join(&page.path);
        let folder = path.parent().unwrap_or(root);
        std::fs::create_dir_all(folder).map_err(|error| failed(folder, error))?;
        write(&path, &page.html).map_err(|error| failed(&path, error))?;
        Ok(page.path)
    });
    let new: BTreeSet<String> = written.into_iter().collect::<Result<_, String>>()?;
    let list = root.join(LIST);
    let lines: String = new.iter().map(|path| format!("{path}\n")).collect();
    write(&list, &lines).map_err(|error| failed(&list, error))?;
    for path in old.difference(&new) {
        // One that somebody has removed is gone already.
        let _ = std::fs::remove_file(root.join(path));
    }
    let of_results = results.iter().map(|(_, check)| check);
    let wrong = of_results.chain(summaries.iter().map(|read| &read.check)).filter(|check| check.is_wrong()).count();
    let mut text = format!("site  {}, {}\n", root.join("index.html").display(), counted(results.len(), "result"));
    if wrong > 0 {
        text += &format!("{} wrong and not ranked\n", counted(wrong, "result"));
    }
    Ok((text, if wrong == 0 { code } else { exit_code::FAILED }))
}

/// Writes a file; not even its contents are flushed to disk, because the results are still there.
fn write(path: &Path, text: &str) -> io::Result<()> {
    create(path)?.write_all(text.as_bytes())
}

/// Returns the files that this command has written into a folder before.
fn old_files(root: &Path) -> Result<BTreeSet<String>, String> {
    let mut entries = match std::fs::read_dir(root) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        Err(error) => return Err(format!("`{}`: {error}", root.display())),
        Ok(entries) => entries,
    };
    match read_regular_text(&root.join(LIST), LIST_BYTES_MAX) {
        Ok(list) => {
            let is_inside = |path: &&str| Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
            Ok(list.lines().filter(is_inside).map(str::to_owned).collect())
        }
        Err(_) if entries.next().is_none() => Ok(BTreeSet::new()),
        Err(_) => {
            Err(format!("`{}` contains other files and no site\n  hint: name a new or an empty folder", root.display()))
        }
    }
}

/// Calls a function for each index below `count`, with one thread for each processor, and returns the results in order.
fn in_parallel<T: Send>(count: usize, call: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(count.max(1));
    let next = AtomicUsize::new(0);
    let mut found: Vec<(usize, T)> = thread::scope(|scope| {
        let run = || {
            let indices =
                std::iter::from_fn(|| Some(next.fetch_add(1, Ordering::Relaxed)).filter(|index| *index < count));
            indices.map(|index| (index, call(index))).collect::<Vec<_>>()
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        let join = |worker: thread::ScopedJoinHandle<'_, Vec<(usize, T)>>| {
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        workers.into_iter().flat_map(join).collect()
    });
    found.sort_unstable_by_key(|(index, _)| *index);
    found.into_iter().map(|(_, result)| result).collect()
}
