//! The roles of authors, and what a rule decides for each.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// As whom a change is judged.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// A vendor, by name.
    Vendor(String),
    /// The author of a case.
    CaseAuthor,
    /// A maintainer of the repository.
    Maintainer,
}

/// A text that names no role.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a role (known: vendor:NAME, case-author, maintainer)")]
pub struct UnknownRole(String);

impl FromStr for Role {
    type Err = UnknownRole;

    fn from_str(text: &str) -> Result<Self, UnknownRole> {
        let is_name =
            |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || ['_', '-'].contains(&c));
        match (text, text.strip_prefix("vendor:")) {
            ("case-author", _) => Ok(Role::CaseAuthor),
            ("maintainer", _) => Ok(Role::Maintainer),
            (_, Some(name)) if is_name(name) => Ok(Role::Vendor(name.to_owned())),
            _ => Err(UnknownRole(text.to_owned())),
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Role::Vendor(name) => write!(f, "vendor:{name}"),
            Role::CaseAuthor => f.write_str("case-author"),
            Role::Maintainer => f.write_str("maintainer"),
        }
    }
}

impl Serialize for Role {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What a rule decides about one change by one role. The greatest of several outcomes is the verdict.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// The role may do this.
    Allowed,
    /// Somebody else has to agree.
    Needs(Role),
    /// The role may not do this.
    Refused,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Allowed => f.write_str("allowed"),
            Outcome::Needs(role) => write!(f, "needs {role}"),
            Outcome::Refused => f.write_str("refused"),
        }
    }
}

impl Serialize for Outcome {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A decision as a policy states it, before the vendor of a path is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    Allowed,
    NeedsVendor,
    NeedsCaseAuthor,
    NeedsMaintainer,
    Refused,
}

impl Decision {
    /// The words that a policy uses.
    const WORDS: [(&'static str, Decision); 5] = [
        ("allowed", Decision::Allowed),
        ("needs vendor", Decision::NeedsVendor),
        ("needs case-author", Decision::NeedsCaseAuthor),
        ("needs maintainer", Decision::NeedsMaintainer),
        ("refused", Decision::Refused),
    ];

    pub(super) fn parse(text: &str) -> Result<Decision, String> {
        let found = Decision::WORDS.iter().find(|(word, _)| *word == text);
        found.map(|(_, decision)| *decision).ok_or_else(|| {
            let words: Vec<String> = Decision::WORDS.iter().map(|(word, _)| format!("`{word}`")).collect();
            format!("`{text}` is no decision (known: {})", words.join(", "))
        })
    }

    /// Returns the outcome for a path of a vendor.
    fn outcome(self, vendor: Option<&str>) -> Outcome {
        match (self, vendor) {
            (Decision::Allowed, _) => Outcome::Allowed,
            (Decision::NeedsVendor, Some(vendor)) => Outcome::Needs(Role::Vendor(vendor.to_owned())),
            (Decision::NeedsCaseAuthor, _) => Outcome::Needs(Role::CaseAuthor),
            (Decision::NeedsMaintainer | Decision::NeedsVendor, _) => Outcome::Needs(Role::Maintainer),
            (Decision::Refused, _) => Outcome::Refused,
        }
    }
}

/// The decisions of one rule for every role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Decisions {
    /// For the vendor of the path, and for every vendor if the path belongs to none.
    pub(super) vendor: Decision,
    pub(super) other_vendor: Decision,
    pub(super) case_author: Decision,
    pub(super) maintainer: Decision,
}

impl Default for Decisions {
    fn default() -> Self {
        Decisions {
            vendor: Decision::Refused,
            other_vendor: Decision::Refused,
            case_author: Decision::NeedsMaintainer,
            maintainer: Decision::Allowed,
        }
    }
}

impl Decisions {
    /// Returns the outcome for a role; `owner` is the vendor to whom the path belongs.
    pub(super) fn outcome(&self, role: &Role, owner: Option<&str>) -> Outcome {
        let decision = match role {
            Role::Vendor(name) if owner.is_none_or(|owner| owner == name) => self.vendor,
            Role::Vendor(_) => self.other_vendor,
            Role::CaseAuthor => self.case_author,
            Role::Maintainer => self.maintainer,
        };
        decision.outcome(owner)
    }
}
