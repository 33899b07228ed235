//! Tests of sites: which results compete, where pages are, and where links lead.

use std::collections::BTreeSet;

use flagperf_core::measure::{Arrival, Scenario, ScenarioFigures, ScenarioReport, TrialFigures};
use flagperf_core::units::{SamplesPerSecond, Seconds};
use flagperf_result::{ReplicaSummary, Summary, testing};
use serde_json::json;

use super::super::result::{Check, ReadResult};
use super::*;

/// A result of a vendor with a throughput and a time.
fn result(vendor: &str, core: f64, started: &str, validity: Validity) -> CheckedResult {
    let mut record = testing::record();
    record.vendor = vendor.to_owned();
    record.started = started.to_owned();
    record.validity.verdict = validity;
    for measured in record.phases.iter_mut().flat_map(|phase| &mut phase.measured) {
        measured.throughput_core_samples_per_s = Some(SamplesPerSecond(core));
    }
    let digest = flagperf_result::digest(format!("{vendor} {core} {started}").as_bytes());
    (ReadResult { path: "r/record.json".into(), record, digest: Some(digest) }, Check::TooLarge)
}

fn results() -> Vec<CheckedResult> {
    vec![
        result("slow", 10.0, "2026-01-01T00:00:00Z", Validity::Valid),
        result("fast", 30.0, "2026-01-01T00:00:00Z", Validity::Valid),
        result("fast", 20.0, "2026-02-01T00:00:00Z", Validity::Valid),
        result("fastest", 99.0, "2026-03-01T00:00:00Z", Validity::Unofficial),
        result("<b>&\u{1b}[2J", 5.0, "2026-03-01T00:00:00Z", Validity::Invalid),
    ]
}

/// Returns results on one device, then those of two devices of a vendor, and the summary of the latter.
fn results_of_two_devices(vendor: &str, core: f64) -> (Vec<CheckedResult>, ReadSummary) {
    let folder = tempfile::tempdir().unwrap();
    let case = folder.path().join("resnet50_interpreter_1x2");
    let mut results = results();
    let of_device = |device: u32| {
        let (mut result, check) = result(vendor, core + f64::from(device), "2026-01-01T00:00:00Z", Validity::Valid);
        result.record.device = Some(device);
        result.path = case.join(format!("h_noderank0_device{device}"));
        std::fs::create_dir_all(&result.path).unwrap();
        (result, check)
    };
    results.extend([of_device(0), of_device(1)]);
    let replica = |(rank, result): (u32, &CheckedResult)| -> ReplicaSummary {
        let measured = json!([{"step": "validation", "samples": 1, "window_s": null, "device_energy_j_per_sample": null,
            "throughput_core_samples_per_s": Entry::of_result(result).core(), "throughput_whole_samples_per_s": null}]);
        let replica = json!({"host": "h", "node_rank": 0, "device": rank, "folder": format!("h_noderank0_device{rank}"),
            "status": "ok", "validity": "valid", "reasons": [], "validity_reasons": [], "digest": null, "processor": null,
            "measured": measured});
        serde_json::from_value(replica).unwrap()
    };
    let own = &results[results.len() - 2..];
    let records = [&own[0].0.record, &own[1].0.record];
    let summary = Summary::of("resnet50:interpreter:1x2", &records, (0..).zip(own).map(replica).collect());
    std::fs::write(case.join("summary.json"), serde_json::to_string(&summary).unwrap()).unwrap();
    let mut read = ReadSummary::of_results(results.iter().map(|(result, _)| result)).0.remove(0);
    read.check = Check::TooLarge;
    (results, read)
}

fn pages(site: &Site) -> Vec<SitePage> {
    (0..site.page_count()).map(|index| site.page(index)).collect()
}

fn ranks<'s>(site: &'s Site, ranking: usize) -> Vec<&'s str> {
    site.rows.iter().map(|row| row.ranks[ranking].number.as_str()).collect()
}

/// Checks that every link of every page leads to a page.
fn check_links(pages: &[SitePage]) {
    let paths: BTreeSet<&str> = pages.iter().map(|page| page.path.as_str()).collect();
    assert_eq!(paths.len(), pages.len(), "{paths:?}");
    for page in pages {
        let html = page.html.replace("&#x2f;", "/");
        let links = html.split("href=\"").skip(1).filter_map(|rest| rest.split_once('"'));
        for (link, _) in links {
            if let Some(id) = link.strip_prefix('#') {
                assert!(html.contains(&format!("id=\"{id}\"")), "{}: {link}", page.path);
                continue;
            }
            let target = link.strip_prefix("../").unwrap_or(link);
            assert_eq!(link.starts_with("../"), page.path.contains('/'), "{}: {link}", page.path);
            assert!(paths.contains(target), "{}: {link}", page.path);
        }
    }
}

#[test]
fn the_newest_valid_result_of_each_configuration_is_ranked_and_the_others_say_why_not() {
    let results = results();
    let site = Site::new(&results, &[], Language::English);
    assert_eq!(ranks(&site, 0), ["2", "", "1", "", ""], "30 was measured before 20, and 99 is not official");
    let reasons: Vec<&str> = site.rows.iter().map(|row| row.ranks[0].reason.as_str()).collect();
    assert_eq!(reasons, ["", "a newer result is ranked", "", "it is unofficial", "it is invalid"]);
    assert_eq!(site.cases[0].entries, [3, 1, 2, 0, 4], "all are listed, the fastest first");
    assert!(site.group_page(&site.cases[0], true).html.contains("<small>it is unofficial</small>"));
}

#[test]
fn every_page_exists_once_and_every_link_leads_to_one() {
    let results = results();
    for language in [Language::English, Language::Chinese] {
        let pages = pages(&Site::new(&results, &[], language));
        assert_eq!(pages.len(), 1 + 1 + 4 + 5);
        check_links(&pages);
        for page in &pages {
            assert!(!page.html.contains("<b>") && !page.html.contains('\u{1b}'), "{}", page.path);
            assert!(page.html.contains("default-src 'none'") && !page.html.contains("<script"), "{}", page.path);
            let html = page.html.replace("&#x2f;", "/");
            if page.path.starts_with("result/") {
                let has = |folder: &str| html.contains(&format!("href=\"../{folder}/"));
                assert!(has("case") && has("vendor"), "a result leads to its case and to its vendor: {html}");
            }
            if page.path.starts_with("vendor/") {
                assert!(html.contains("href=\"../case/resnet50.html\""), "{html}");
            }
        }
    }
}

#[test]
fn the_address_of_a_page_does_not_depend_on_the_other_results() {
    let all = results();
    let paths = |results: &[CheckedResult]| -> BTreeSet<String> {
        pages(&Site::new(results, &[], Language::English)).into_iter().map(|page| page.path).collect()
    };
    let of_all = paths(&all);
    for result in all {
        let of_one = paths(&[result]);
        assert!(of_one.is_subset(&of_all), "{of_one:?} {of_all:?}");
    }
}

#[test]
fn a_run_on_several_devices_is_one_row_and_ranked_among_those_on_as_many() {
    let (results, summary) = results_of_two_devices("slow", 11.0);
    let site = Site::new(&results, std::slice::from_ref(&summary), Language::English);
    assert_eq!(site.rows.len(), 6, "five results on one device and one on two");
    let row = &site.rows[0];
    assert_eq!((row.key.as_str(), row.cells[1].as_str()), ("resnet50:interpreter:1x2", "2"));
    assert_eq!(row.cells[THROUGHPUT_CELL], "23.0 samples/s");
    assert_eq!(ranks(&site, 0), ["1", "2", "", "1", "", ""], "the sum does not compete with one device");
    assert_eq!(site.cases[0].entries.last(), Some(&0), "several devices are below one");
    let pages = pages(&site);
    assert_eq!(pages.len(), 1 + 1 + 4 + 7 + 1);
    check_links(&pages);
    let of_sum = pages.last().unwrap();
    assert_eq!(of_sum.path, row.path);
    let html = of_sum.html.replace("&#x2f;", "/");
    assert!(html.contains("verdict: valid") && html.contains("sum: 1 host x 2 devices"), "{html}");
    for index in [5, 6] {
        assert!(html.contains(&site.paths[index]), "it leads to the pages of its devices: {html}");
        let page = pages.iter().find(|page| page.path == site.paths[index]).unwrap();
        assert!(page.html.replace("&#x2f;", "/").contains(&row.path), "and they lead to it");
    }
}

#[test]
fn a_result_of_a_device_whose_sum_is_not_known_is_not_ranked() {
    let (mut results, _) = results_of_two_devices("slow", 11.0);
    results.pop();
    let site = Site::new(&results, &[], Language::English);
    assert_eq!(ranks(&site, 0), ["2", "", "1", "", "", ""]);
    assert_eq!(site.rows[5].ranks[0].reason, "it is part of a result on several devices");
}

#[test]
fn results_of_scenarios_are_also_ranked_by_the_queries_that_kept_the_bound() {
    let with_scenario = |(mut result, check): CheckedResult, queries: f64, holds: bool| {
        let kind = Arrival::Server;
        let scenario = Scenario { kind, latency_bound_s: Some(Seconds(0.015)), ..Scenario::default() };
        let report = Some(ScenarioReport { scenario, ..ScenarioReport::default() });
        let trial = TrialFigures { queries_per_s: Some(queries), holds: Some(holds), ..TrialFigures::default() };
        result.record.phases[0].scenario = Some(ScenarioFigures { report, trials: vec![trial] });
        (result, check)
    };
    let [slow, _, fast, unofficial, _] = <[CheckedResult; 5]>::try_from(results()).unwrap();
    let missing = result("missing", 1.0, "2026-01-01T00:00:00Z", Validity::Valid);
    let results = [
        with_scenario(slow, 9.0, true),
        with_scenario(fast, 8.0, true),
        with_scenario(missing, 50.0, false),
        unofficial,
    ];
    let site = Site::new(&results, &[], Language::English);
    assert_eq!(ranks(&site, 0), ["2", "1", "3", ""]);
    assert_eq!(ranks(&site, 1), ["1", "2", "", ""]);
    assert_eq!(site.rows[2].ranks[1].reason, "it misses the bound");
    assert_eq!(site.rows[3].ranks[1].reason, "", "it has no scenario");
    let html = site.group_page(&site.cases[0], true).html;
    assert!(html.contains("rank by queries/s") || html.contains("rank by queries&#x2f;s"), "{html}");
}

#[test]
fn a_copy_of_a_result_has_no_page_of_its_own() {
    let mut twice = results();
    twice.extend(results());
    assert_eq!(without_copies(twice).len(), 5);
}

#[test]
fn the_history_of_a_case_has_a_line_for_each_configuration_that_was_measured_again() {
    let results = results();
    let site = Site::new(&results, &[], Language::English);
    let history = history(site.cases[0].entries.iter().map(|index| &site.entries[*index])).unwrap();
    let names: Vec<&str> = history.legend.iter().map(|(_, name)| name.as_str()).collect();
    assert!(names.len() == 1 && names[0].starts_with("fast, "), "{names:?}");
    assert!(history.elements.contains("2026-01-"), "{}", history.elements);
}
