//! A range of commits, and the reasons why it cannot be compared.

/// A range of commits: what HEAD adds since it separated from BASE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// The revision to compare with; `None` for the main branch.
    pub base: Option<String>,
    /// The revision with the changes.
    pub head: String,
}

impl Range {
    /// Parses `BASE..HEAD`, `BASE..` or `BASE`; without a text, compares the main branch with HEAD.
    pub fn parse(text: Option<&str>) -> Range {
        let Some(text) = text else { return Range { base: None, head: "HEAD".to_owned() } };
        let (base, head) = text.split_once("..").unwrap_or((text, ""));
        let head = head.trim_start_matches('.');
        let or = |name: &str, default: Option<&str>| match name {
            "" => default.map(str::to_owned),
            name => Some(name.to_owned()),
        };
        Range { base: or(base, None), head: or(head, None).unwrap_or_else(|| "HEAD".to_owned()) }
    }
}

/// Why a range cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HistoryError {
    /// The folder is in no repository.
    #[error("`{folder}` is in no git repository that can be read: {reason}")]
    NoRepository { folder: String, reason: String },
    /// A revision does not exist here.
    #[error("unknown revision `{revision}`{}", shallow_note(*.is_shallow))]
    UnknownRevision {
        revision: String,
        /// Whether the repository lacks a part of its history.
        is_shallow: bool,
    },
    /// No base was given, and the main branch has none of the usual names.
    #[error("there is no branch to compare with (tried: {})", .tried.join(", "))]
    NoMainBranch {
        /// The names.
        tried: Vec<String>,
    },
    /// Two revisions have no common history here.
    #[error("`{base}` and `{head}` have no common commit{}", shallow_note(*.is_shallow))]
    NoMergeBase {
        /// The one revision.
        base: String,
        /// The other one.
        head: String,
        /// Whether the repository lacks a part of its history.
        is_shallow: bool,
    },
    /// An object cannot be read.
    #[error("the repository cannot be read: {reason}")]
    Unreadable { reason: String },
}

impl HistoryError {
    /// Returns what to do about the error.
    pub fn hint(&self) -> &'static str {
        match self {
            HistoryError::NoRepository { .. } => "run the command in a clone of the repository",
            HistoryError::UnknownRevision { is_shallow: true, .. }
            | HistoryError::NoMergeBase { is_shallow: true, .. } => {
                "fetch the whole history: `git fetch --unshallow`, or `fetch-depth: 0` of the CI's checkout step"
            }
            HistoryError::UnknownRevision { .. } | HistoryError::NoMainBranch { .. } => {
                "give the range as BASE..HEAD, such as `origin/main..HEAD`, and fetch its commits"
            }
            HistoryError::NoMergeBase { .. } => {
                "the change must begin at a commit of the branch that it is compared with"
            }
            HistoryError::Unreadable { .. } => "check the repository with `git fsck`",
        }
    }
}

fn shallow_note(is_shallow: bool) -> &'static str {
    if is_shallow { ": this clone is shallow and lacks earlier commits" } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_names_its_base_and_its_head() {
        let parsed = |text| {
            let Range { base, head } = Range::parse(text);
            (base.unwrap_or_else(|| "main branch".to_owned()), head)
        };
        for (text, base, head) in [
            (None, "main branch", "HEAD"),
            (Some("origin/main..topic"), "origin/main", "topic"),
            (Some("a...b"), "a", "b"),
            (Some("a.."), "a", "HEAD"),
            (Some("..b"), "main branch", "b"),
            (Some("a"), "a", "HEAD"),
        ] {
            assert_eq!(parsed(text), (base.to_owned(), head.to_owned()), "{text:?}");
        }
    }
}
