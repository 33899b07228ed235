//! The addresses of the pages of a site. An address follows from what is on the page, so that it stays the same when other results come or
//! go.

use flagperf_core::hash::hash_bytes;
use flagperf_result::DIGEST_PREFIX;
use indexmap::IndexMap;
use indexmap::map::Entry as MapEntry;

use super::super::entry::CheckedResult;
use super::super::result::ReadResult;

/// Digits of a hash in an address: with 64 bits, two of a million results have the same with a probability below 1 in 10 million.
const DIGITS: usize = 16;
/// Most characters of a name in an address.
const NAME_MAX: usize = 64;

/// Returns the path of the page of a result, with the first digits of its digest, or of the hash of a record alone.
pub(super) fn result_path(result: &ReadResult) -> String {
    let hash = result.digest.as_deref().map(|digest| digest.strip_prefix(DIGEST_PREFIX).unwrap_or(digest).to_owned());
    let record = || serde_json::to_vec(&result.record).expect("a record is plain data");
    path(&result.record.run, &hash.unwrap_or_else(|| hash_bytes(&record())))
}

/// Returns the path of the page of a sum, from the hash of its summary and the paths of the pages of its results.
pub(super) fn sum_path(run: &str, sha256: &str, results: &[&str]) -> String {
    path(run, &hash_bytes(format!("{sha256} {}", results.join(" ")).as_bytes()))
}

fn path(run: &str, hash: &str) -> String {
    format!("result/{}-{hash:.DIGITS$}.html", file_name(run))
}

/// Returns a name for a file, in which other characters than letters, digits, `-` and `_` are replaced; the hash of such a name, or of a
/// long one, then distinguishes it from others.
pub(super) fn file_name(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let plain: String = name.chars().take(NAME_MAX).map(|c| if is_plain(c) { c } else { '_' }).collect();
    match plain == name && !plain.is_empty() {
        true => plain,
        false => format!("{plain}-{:.DIGITS$}", hash_bytes(name.as_bytes())),
    }
}

/// Leaves out the copies of results, which would have the same page. Of several copies, one is kept that is not wrong, if there is one.
pub fn without_copies(results: Vec<CheckedResult>) -> Vec<CheckedResult> {
    let mut kept: IndexMap<String, CheckedResult> = IndexMap::new();
    for result in results {
        match kept.entry(result_path(&result.0)) {
            MapEntry::Vacant(place) => drop(place.insert(result)),
            MapEntry::Occupied(mut place) if place.get().1.is_wrong() => drop(place.insert(result)),
            MapEntry::Occupied(_) => {}
        }
    }
    kept.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_characters_are_replaced_in_the_name_of_a_file() {
        let names = ["resnet50", "../../etc", "../..?etc", ""].map(file_name);
        assert_eq!(names[0], "resnet50");
        assert!(names[1].starts_with("______etc-") && names[2].starts_with("______etc-"), "{names:?}");
        assert!(names[1] != names[2] && names[3].len() == DIGITS + 1, "{names:?}");
    }
}
