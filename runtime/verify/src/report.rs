//! The report of a verification.

use std::collections::BTreeMap;

use serde::Serialize;

use flagperf_result::ValidityCheck;

/// Largest number of findings of a result.
const FINDINGS_MAX: usize = 100;
/// Longest text of a value in a finding, in bytes.
const VALUE_BYTES_MAX: usize = 300;

/// The outcome of a verification, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// The result is consistent, and a known key or the given digest vouches for it.
    Authentic,
    /// Nothing in the result contradicts anything else. Whoever can write its files can also write others that agree.
    Consistent,
    /// The result contradicts itself, its digest or its signature.
    Wrong,
    /// The result cannot be checked, or not completely.
    NotVerifiable,
}

impl Standing {
    /// Returns the standing as used in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Standing::Authentic => "authentic",
            Standing::Consistent => "consistent",
            Standing::Wrong => "WRONG",
            Standing::NotVerifiable => "not verifiable",
        }
    }
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VerifyFinding {
    /// The file, relative to the folder of the result.
    pub file: String,
    /// What is wrong: a place in the file, or a fragment.
    pub what: String,
    /// What should be there, if that is known.
    pub expected: Option<String>,
    /// What is there.
    pub found: Option<String>,
}

/// The verification of one result.
#[derive(Clone, Debug, Serialize)]
pub struct CaseReport {
    /// The folder or the record.
    pub path: String,
    /// The case and its framework: `resnet50:interpreter`.
    pub case: Option<String>,
    /// The outcome.
    pub standing: Standing,
    /// The digest of the manifest.
    pub digest: Option<String>,
    /// What proves that the result is authentic: a signature, or the digest that was given.
    pub proof: Option<String>,
    /// The verdict on the result according to its record.
    pub validity: Option<ValidityCheck>,
    /// What is wrong.
    pub findings: Vec<VerifyFinding>,
    /// Number of findings that are not listed, by file.
    pub more_findings: BTreeMap<String, u64>,
    /// What was not checked, with the reasons.
    pub unchecked: Vec<String>,
    /// The fields of the record that only the run itself states; empty when there is no record.
    pub not_checkable: &'static [&'static str],
    /// Bytes of the files that were hashed.
    pub bytes: u64,
}

impl CaseReport {
    /// Creates the report of a result about which nothing is known yet.
    pub fn new(path: &std::path::Path) -> Self {
        CaseReport {
            path: path.display().to_string(),
            case: None,
            standing: Standing::Consistent,
            digest: None,
            proof: None,
            validity: None,
            findings: Vec::new(),
            more_findings: BTreeMap::new(),
            unchecked: Vec::new(),
            not_checkable: &[],
            bytes: 0,
        }
    }

    /// Adds a finding; the result is then wrong.
    pub fn add(&mut self, file: &str, what: impl Into<String>, expected: Option<String>, found: Option<String>) {
        self.standing = Standing::Wrong;
        if self.findings.len() == FINDINGS_MAX {
            *self.more_findings.entry(file.to_owned()).or_default() += 1;
            return;
        }
        let common = match (&expected, &found) {
            (Some(expected), Some(found)) => common_bytes(expected, found),
            _ => 0,
        };
        let (expected, found) = (expected.map(|text| excerpt(text, common)), found.map(|text| excerpt(text, common)));
        let finding = VerifyFinding { file: file.to_owned(), what: what.into(), expected, found };
        if !self.findings.contains(&finding) {
            self.findings.push(finding);
        }
    }

    /// Adds something that cannot be checked, without which the result is not verifiable.
    pub fn give_up(&mut self, reason: impl Into<String>) {
        self.unchecked.push(reason.into());
        if self.standing != Standing::Wrong {
            self.standing = Standing::NotVerifiable;
        }
    }

    /// Appends what another report of the same result found.
    #[must_use]
    pub fn followed_by(mut self, later: CaseReport) -> Self {
        self.standing = match (self.standing, later.standing) {
            (Standing::Wrong, _) | (_, Standing::Wrong) => Standing::Wrong,
            (first, second) => first.max(second),
        };
        self.findings.extend(later.findings);
        for (file, count) in later.more_findings {
            *self.more_findings.entry(file).or_default() += count;
        }
        self.unchecked.extend(later.unchecked);
        self
    }

    /// Compares two texts.
    pub fn compare(&mut self, file: &str, what: &str, expected: &str, found: &str) {
        if expected != found {
            self.add(file, what, Some(expected.to_owned()), Some(found.to_owned()));
        }
    }
}

/// Returns the number of bytes at the beginning of two texts that are equal, in whole characters.
fn common_bytes(one: &str, other: &str) -> usize {
    one.chars().zip(other.chars()).take_while(|(one, other)| one == other).map(|(one, _)| one.len_utf8()).sum()
}

/// Shortens a long text to a part in which it differs from another one, with which it has `common` bytes at the beginning.
fn excerpt(text: String, common: usize) -> String {
    /// Bytes shown before the first difference.
    const BEFORE_BYTES: usize = 40;
    if text.len() <= VALUE_BYTES_MAX {
        return text;
    }
    let start = text.floor_char_boundary(common.saturating_sub(BEFORE_BYTES));
    let before = if start > 0 { "... " } else { "" };
    format!("{before}{}", flagperf_core::text::truncate(&text[start..], VALUE_BYTES_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_long_values_the_part_that_differs_is_shown() {
        let mut report = CaseReport::new(std::path::Path::new("x"));
        let long = |end: &str| format!("{}é{end}{}", "a".repeat(5000), "b".repeat(5000));
        report.compare("record.json", "settings", &long("one"), &long("two"));
        let VerifyFinding { expected, found, .. } = &report.findings[0];
        let begins = |text: &Option<String>, end: &str| {
            text.as_deref().unwrap().starts_with(&format!("... {}é{end}b", "a".repeat(38)))
        };
        assert!(begins(expected, "one") && begins(found, "two"), "{expected:?} {found:?}");
    }
}
