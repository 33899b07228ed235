//! `flagperf verify` and `flagperf sign`: check results, and sign their manifests.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueHint};

use super::key::default_key_file;
use super::output::{print_message, print_mistake, print_result};
use flagperf_config::find_root;
use flagperf_core::exit_code;
use flagperf_core::run_files::{MANIFEST_FILE, SIGNATURE_FILE, STATE_FILE};
use flagperf_core::text::{escape_json, one_line};
use flagperf_result::{MANIFEST_BYTES_MAX, PrivateKey, PublicKey, ResultManifest, digest};
use flagperf_verify::{
    CaseReport, KnownKey, Standing, Trust, find_results, is_digest, missing_summary, verify_result, verify_summary,
};

/// Exit code: every result is authentic or consistent.
const EXIT_RIGHT: u8 = 0;
/// Exit code: a result is wrong.
const EXIT_WRONG: u8 = 1;
/// Largest number of public keys of a checkout.
const KEYS_MAX: usize = 1000;

#[derive(Debug, Args)]
pub(super) struct VerifyArguments {
    /// Folder of a case, folder of a run, or a record.json
    #[arg(value_hint = ValueHint::AnyPath)]
    result: PathBuf,
    /// The digest that the run printed, from a source that you trust; repeatable
    #[arg(long, value_name = "sha256:HEX", value_hint = ValueHint::Other)]
    digest: Vec<String>,
    /// Public key that counts for every result; repeatable. Keys in configs/keys and vendors/VENDOR/keys of the checkout
    /// count without this
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    key: Vec<PathBuf>,
    /// Print the reports as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(super) struct SignArguments {
    /// Folder of a case or of a run
    #[arg(value_hint = ValueHint::DirPath)]
    result: PathBuf,
    /// File of the private key [default: flagperf/key in XDG_CONFIG_HOME or ~/.config]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    key: Option<PathBuf>,
}

/// Verifies results and prints what was found.
pub(super) fn verify(arguments: &VerifyArguments) -> anyhow::Result<ExitCode> {
    let trust = match trust(arguments) {
        Ok(trust) => trust,
        Err(message) => return Ok(print_mistake(&message)),
    };
    let results = match find_results(&arguments.result) {
        Ok(results) => results,
        Err(error) => {
            let path = arguments.result.display();
            return Ok(match unfinished_run(&arguments.result) {
                Some(run) => print_mistake(&format!("cannot verify `{path}`: {}", describe_unfinished(&run))),
                None => print_mistake(&format!("cannot verify `{path}`: {error}")),
            });
        }
    };
    let mut reports: Vec<CaseReport> = results.iter().map(|path| verify_result(path, &trust)).collect();
    let mut cases: Vec<&Path> = results.iter().filter(|path| path.is_dir()).filter_map(|path| path.parent()).collect();
    cases.dedup();
    // One result is verified without those beside it.
    let cases = if results.contains(&arguments.result) { Vec::new() } else { cases };
    reports.extend(cases.into_iter().filter_map(|case| {
        let own = results.iter().filter(|result| result.parent() == Some(case));
        verify_summary(case).or_else(|| (own.count() > 1).then(|| missing_summary(case)))
    }));
    let text = match arguments.json {
        true => format!("{}\n", escape_json(&serde_json::to_string_pretty(&reports)?)),
        false => reports.iter().map(report_text).collect(),
    };
    let worst = reports.iter().map(|report| report.standing).max();
    // Of several results, a wrong one decides.
    let is_wrong = reports.iter().any(|report| report.standing == Standing::Wrong);
    let unfinished = unfinished_run(&arguments.result).filter(|run| *run == arguments.result);
    let code = print_result(
        &text,
        match worst {
            _ if is_wrong => EXIT_WRONG,
            Some(Standing::Authentic | Standing::Consistent) if unfinished.is_none() => EXIT_RIGHT,
            _ => exit_code::MISTAKE,
        },
    );
    if let Some(run) = unfinished {
        print_message(&format!("error: {}", describe_unfinished(&run)));
    }
    let is_unknown = |digest: &&String| !reports.iter().any(|report| report.digest.as_ref() == Some(*digest));
    for digest in trust.digests.iter().filter(is_unknown).filter(|_| !is_wrong) {
        print_message(&format!(
            "warning: no result in `{}` has the digest {digest} of `--digest`: is a result missing?",
            arguments.result.display()
        ));
    }
    let given = trust.digests.len();
    if is_wrong && given > 0 && given < results.len() {
        print_message(&format!(
            "  hint: `{}` contains {} results, and each has a digest of its own: repeat the option for each, as in `--digest D1 \
             --digest D2`, or give the folder of one result",
            arguments.result.display(),
            results.len()
        ));
    }
    Ok(code)
}

/// Returns the folder of the run to which `path` belongs, if the run has not completed.
fn unfinished_run(path: &Path) -> Option<PathBuf> {
    // The folder of a run contains those of cases, and these contain those of hosts with their files.
    let run =
        path.ancestors().take(4).find(|folder| !folder.as_os_str().is_empty() && folder.join(STATE_FILE).is_file());
    run.map(Path::to_owned)
}

/// Describes a run that has not completed, with what to do about it.
fn describe_unfinished(run: &Path) -> String {
    let shown = run.display();
    // The process of a run holds the lock of its folder.
    let is_running = File::open(run).is_ok_and(|folder| matches!(folder.try_lock(), Err(TryLockError::WouldBlock)));
    match is_running {
        true => format!("the run `{shown}` has not ended yet\n  hint: verify it when it has ended"),
        false => format!(
            "the run `{shown}` is unfinished: it was interrupted, or its main process ended, before the last case was complete\n  hint: `flagperf resume \
             {shown}` continues it"
        ),
    }
}

/// Signs the manifests of results.
pub(super) fn sign(arguments: &SignArguments) -> anyhow::Result<ExitCode> {
    let Some(path) = arguments.key.clone().or_else(default_key_file) else {
        return Ok(print_mistake("no key: neither XDG_CONFIG_HOME nor HOME is set; give one with --key"));
    };
    let key = match PrivateKey::read(&path) {
        Ok(key) => key,
        Err(error) if path.exists() => return Ok(print_mistake(&error.to_string())),
        Err(error) => return Ok(print_mistake(&format!("{error}\n  hint: `flagperf key new` creates a key"))),
    };
    let results = match find_results(&arguments.result) {
        Ok(results) => results,
        Err(error) => return Ok(print_mistake(&format!("cannot sign `{}`: {error}", arguments.result.display()))),
    };
    let mut text = String::new();
    for folder in results {
        match sign_one(&folder, &key) {
            Ok(digest) => {
                text += &format!("signed {}\n  digest  {digest}\n  key     {}\n", folder.display(), key.public().name)
            }
            Err(message) => return Ok(print_mistake(&format!("cannot sign `{}`: {message}", folder.display()))),
        }
    }
    Ok(print_result(&text, EXIT_RIGHT))
}

/// Writes the signature of a result whose files are those of its manifest, and returns the digest.
fn sign_one(folder: &Path, key: &PrivateKey) -> Result<String, String> {
    let report = verify_result(folder, &Trust::default());
    if report.standing != Standing::Consistent {
        return Err(format!("it is {}; `flagperf verify` shows why", report.standing.name()));
    }
    let text = flagperf_core::regular_file::read_regular(&folder.join(MANIFEST_FILE), MANIFEST_BYTES_MAX)
        .map_err(|error| error.to_string())?;
    ResultManifest::parse(&text).map_err(|error| error.to_string())?;
    let digest = digest(&text);
    let path = folder.join(SIGNATURE_FILE);
    let mut file = flagperf_core::file::create(&path).map_err(|error| error.to_string())?;
    std::io::Write::write_all(&mut file, key.sign(&digest).to_text().as_bytes()).map_err(|error| error.to_string())?;
    Ok(digest)
}

/// Collects what the reader trusts: the arguments, and the keys of the checkout that contains the current directory.
fn trust(arguments: &VerifyArguments) -> Result<Trust, String> {
    if let Some(digest) = arguments.digest.iter().find(|digest| !is_digest(digest)) {
        let shown = one_line(digest);
        return Err(format!("`--digest {shown}` is not a digest (expected: `sha256:` and 64 hexadecimal digits)"));
    }
    let mut keys = Vec::new();
    for path in &arguments.key {
        let key = PublicKey::read(path).map_err(|error| error.to_string())?;
        keys.push(KnownKey { key, vendor: None });
    }
    if let Some(root) = std::env::current_dir().ok().as_deref().and_then(find_root) {
        keys.extend(checkout_keys(&root)?);
    }
    Ok(Trust { digests: arguments.digest.clone(), keys })
}

/// Checks that a result is authentic or consistent, with the keys of the checkout that contains the current directory.
///
/// # Errors
/// When it is not: the message is the report of `flagperf verify`.
pub(super) fn check_standing(path: &Path) -> Result<(), String> {
    let trust = checkout_trust()?;
    let results = find_results(path).map_err(|error| format!("cannot verify `{}`: {error}", path.display()))?;
    let mut reports = results.iter().map(|path| verify_result(path, &trust));
    let refused = reports.find(|report| !matches!(report.standing, Standing::Authentic | Standing::Consistent));
    refused.map_or(Ok(()), |report| {
        let text = report_text(&report);
        Err(format!("`{}` is not confirmed by `flagperf verify`:\n{}", path.display(), text.trim_end()))
    })
}

/// Returns what counts without an argument: the keys of the checkout that contains the current directory.
///
/// # Errors
/// When a key cannot be read.
pub(super) fn checkout_trust() -> Result<Trust, String> {
    let root = std::env::current_dir().ok().as_deref().and_then(find_root);
    let keys = root.map(|root| checkout_keys(&root)).transpose()?.unwrap_or_default();
    Ok(Trust { digests: Vec::new(), keys })
}

/// Returns the keys of a checkout: those of the maintainers in `configs/keys`, and those of each vendor in
/// `vendors/<vendor>/keys`, which count for its own results.
fn checkout_keys(root: &Path) -> Result<Vec<KnownKey>, String> {
    let mut folders = vec![(root.join("configs/keys"), None)];
    for vendor in std::fs::read_dir(root.join("vendors")).into_iter().flatten().flatten().take(KEYS_MAX) {
        let name = vendor.file_name().to_string_lossy().into_owned();
        folders.push((vendor.path().join("keys"), Some(name)));
    }
    let mut keys = Vec::new();
    for (folder, vendor) in folders {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let files = entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|name| name == "pub"));
        for path in files.take(KEYS_MAX) {
            let key = PublicKey::read(&path).map_err(|error| error.to_string())?;
            keys.push(KnownKey { key, vendor: vendor.clone() });
        }
    }
    Ok(keys)
}

/// Formats the report of a result: the standing, its proof, the verdict, and what is wrong.
fn report_text(report: &CaseReport) -> String {
    let case = one_line(report.case.as_deref().unwrap_or(&report.path));
    let mut lines = vec![format!("{}  {case}", report.standing.name())];
    let mut add = |name: &str, text: &str| lines.push(format!("  {name:<9} {}", one_line(text)));
    if report.case.is_some() {
        add("result", &report.path);
    }
    if let Some(digest) = &report.digest {
        add("digest", digest);
    }
    match (&report.proof, report.standing) {
        (Some(proof), _) => add("proof", proof),
        (None, Standing::Consistent) => add(
            "note",
            "anyone who can write these files can make them agree; a signature with a known key, or --digest with the digest that the run printed, proves that they are authentic",
        ),
        _ => {}
    }
    if let Some(validity) = &report.validity {
        let name = if report.standing == Standing::Wrong { "recorded" } else { "verdict" };
        add(name, &validity.line());
    }
    for finding in &report.findings {
        let file = if finding.file.is_empty() { String::new() } else { format!("{}: ", finding.file) };
        let values = match (&finding.expected, &finding.found) {
            (Some(expected), Some(found)) => format!(": expected {expected}, found {found}"),
            (Some(expected), None) => format!(": expected {expected}"),
            (None, Some(found)) => format!(": found {found}"),
            (None, None) => String::new(),
        };
        add("wrong", &format!("{file}{}{values}", finding.what));
    }
    for (file, count) in &report.more_findings {
        add("wrong", &format!("{file}: {count} more, which are not listed"));
    }
    for reason in &report.unchecked {
        add("unchecked", reason);
    }
    if !report.not_checkable.is_empty() {
        let fields = report.not_checkable.join(", ");
        add("not checkable", &format!("{fields}: only the run itself states them"));
    }
    lines.join("\n") + "\n"
}
