//! The sums of a case that ran on several hosts or devices, from the `summary.json` beside its results.

use std::path::{Path, PathBuf};

use flagperf_core::regular_file::read_regular;
use flagperf_core::run_files::SUMMARY_FILE;
use flagperf_result::{RECORD_BYTES_MAX, Summary};
use flagperf_verify::verify_summary;

use super::result::{Check, ReadResult};

/// A summary that was read.
#[derive(Clone, Debug)]
pub struct ReadSummary {
    pub path: PathBuf,
    pub summary: Summary,
    /// What `verify` says of it.
    pub check: Check,
}

impl ReadSummary {
    /// Reads the summary of each case all of whose results are among these, and verifies it if they were verified.
    pub fn of_results(results: &[(ReadResult, Check)]) -> Vec<Self> {
        let mut cases: Vec<&Path> = results.iter().filter_map(|(result, _)| result.folder()?.parent()).collect();
        cases.dedup();
        cases.into_iter().filter_map(|case| ReadSummary::read(case, results)).collect()
    }

    fn read(case: &Path, results: &[(ReadResult, Check)]) -> Option<Self> {
        let path = case.join(SUMMARY_FILE);
        let summary: Summary = serde_json::from_slice(&read_regular(&path, RECORD_BYTES_MAX).ok()?).ok()?;
        let of_replica = |folder: &str| results.iter().find(|(result, _)| result.path == case.join(folder));
        let replicas: Vec<_> =
            summary.replicas.iter().map(|replica| of_replica(&replica.folder)).collect::<Option<_>>()?;
        let is_large = replicas.iter().any(|(_, check)| matches!(check, Check::TooLarge));
        let check = if is_large { Check::TooLarge } else { Check::Verified(Box::new(verify_summary(case)?)) };
        Some(ReadSummary { path, summary, check })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagperf_result::testing;
    use serde_json::json;

    #[test]
    fn a_case_has_sums_if_all_of_its_results_are_there() {
        let folder = tempfile::tempdir().unwrap();
        let case = folder.path().join("a_b_1x2");
        std::fs::create_dir(&case).unwrap();
        let mut summary = json!({"schema": 3, "run": "r", "case": "a:b:1x2", "vendor": "v", "unit": "image", "status": "ok", "validity": "unofficial",
            "replicas": [], "steps": [], "warnings": []});
        let replica = |rank: u32| {
            json!({"host": "h", "node_rank": 0, "device": rank, "folder": format!("h_noderank0_device{rank}"), "status": "ok",
            "validity": "unofficial", "reasons": [], "validity_reasons": [], "digest": null, "processor": null, "measured": []})
        };
        summary["replicas"] = json!([replica(0), replica(1)]);
        std::fs::write(case.join(SUMMARY_FILE), summary.to_string()).unwrap();
        let result = |rank: u32| {
            let path = case.join(format!("h_noderank0_device{rank}"));
            std::fs::create_dir_all(&path).unwrap();
            (ReadResult { path, record: testing::record(), digest: None }, Check::TooLarge)
        };
        let found = ReadSummary::of_results(&[result(0), result(1)]);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].summary.replicas.len(), found[0].check.name()), (2, "not checked"));
        assert_eq!(ReadSummary::of_results(&[result(1)]).len(), 0);
    }
}
