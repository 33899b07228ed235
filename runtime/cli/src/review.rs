//! `flagperf review`: judges what a range of commits changes.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;

use super::arguments::ReviewArguments;
use super::output::{print_message, print_result};
use super::review_markdown::markdown_text;
use super::review_text::terminal_text;
use flagperf_core::exit_code;
use flagperf_core::measure::MonotonicClock;
use flagperf_core::suggestion::list_names;
use flagperf_core::text::escape_json;
use flagperf_history::{HistoryError, Range, Repository};
use flagperf_report::columns;
use flagperf_review::{
    Commits, POLICY_FILE, Policy, PolicyError, Review, ReviewRequest, Role, Snapshot, Unreadable, Verdict,
    review as judge,
};
use flagperf_run::CheckoutState;
use flagperf_script::{ScriptParser, run_on_script_stack};

/// Bytes of stack for syntax trees of scripts, in addition to what every thread for scripts has.
const STACK_BYTES: u64 = 64 << 20;

/// Why nothing could be reviewed.
#[derive(Debug, thiserror::Error)]
enum ReviewError {
    #[error(transparent)]
    History(#[from] HistoryError),
    #[error("commit {base} has no usable {POLICY_FILE}: {reason}")]
    NoPolicy { base: String, reason: Unreadable },
    #[error("{problem} (in commit {base})")]
    Policy { base: String, problem: PolicyError },
    #[error("--as vendor:{name}: there is no vendor `{name}` (known: {})", list_names(known.iter().map(String::as_str)))]
    UnknownVendor { name: String, known: Vec<String> },
    #[error("{0}")]
    Stack(String),
}

impl ReviewError {
    fn hint(&self) -> &'static str {
        match self {
            ReviewError::UnknownVendor { .. } => "each folder of `vendors/`, before or after the change, is a vendor",
            ReviewError::History(error) => error.hint(),
            ReviewError::NoPolicy { .. } => "the policy of the base applies: a maintainer has to add it there first",
            ReviewError::Policy { .. } => "the policy of the base applies: a maintainer has to correct it there first",
            ReviewError::Stack(_) => "report this with the range of commits",
        }
    }
}

/// Reviews a range of the repository that contains the current directory, and prints the review.
pub(super) fn review(arguments: &ReviewArguments) -> anyhow::Result<ExitCode> {
    let here = std::env::current_dir().context("the current directory is gone")?;
    let reviewed = run_on_script_stack(STACK_BYTES, || review_range(&here, arguments));
    let review = match reviewed.map_err(ReviewError::Stack).and_then(|reviewed| reviewed) {
        Ok(review) => review,
        Err(error) => {
            print_message(&format!("error: {error}\n  hint: {}", error.hint()));
            return Ok(ExitCode::from(exit_code::MISTAKE));
        }
    };
    let text = match arguments {
        ReviewArguments { json: true, .. } => {
            format!("{}\n", escape_json(&serde_json::to_string_pretty(&review)?))
        }
        ReviewArguments { markdown: true, .. } => markdown_text(&review),
        _ => terminal_text(&review, usize::from(columns())),
    };
    let code = if review.verdict == Verdict::Allowed { exit_code::OK } else { exit_code::FAILED };
    Ok(print_result(&text, code))
}

/// Checks that a vendor exists before or after a change.
fn check_vendor(name: &str, before: &dyn Snapshot, after: &dyn Snapshot) -> Result<(), ReviewError> {
    let folders = [before, after].into_iter().flat_map(|tree| tree.list("vendors")).filter(|found| found.is_folder);
    let known: BTreeSet<String> = folders.map(|folder| folder.text).collect();
    match known.contains(name) {
        true => Ok(()),
        false => Err(ReviewError::UnknownVendor { name: name.to_owned(), known: known.into_iter().collect() }),
    }
}

fn review_range(folder: &Path, arguments: &ReviewArguments) -> Result<Review, ReviewError> {
    let repository = Repository::open(folder)?;
    let range = Range::parse(arguments.range.as_deref());
    let compared = repository.compare(&range)?;
    let no_policy = |reason| ReviewError::NoPolicy { base: compared.base.clone(), reason };
    let policy = compared.before.text(POLICY_FILE).map_err(no_policy)?;
    let policy =
        Policy::parse(&policy).map_err(|problem| ReviewError::Policy { base: compared.base.clone(), problem })?;
    if let Some(Role::Vendor(name)) = &arguments.role {
        check_vendor(name, &compared.before, &compared.after)?;
    }
    let parser = ScriptParser::new(Arc::new(MonotonicClock::start()));
    let mut review = judge(&ReviewRequest {
        policy: &policy,
        before: &compared.before,
        after: &compared.after,
        changes: &compared.changes,
        role: arguments.role.as_ref(),
        parser: &parser,
    });
    review.commits = Some(Commits { base: compared.base, head: compared.head });
    review.notes.extend(compared.notes);
    if range.head == "HEAD" && CheckoutState::read(folder).is_clean == Some(false) {
        review.notes.push("changes that are not committed were not reviewed".to_owned());
    }
    Ok(review)
}
