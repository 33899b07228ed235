//! Writes a site of results: a ranking and a history for each case, a page for each vendor and each result. No page needs a server or a
//! script; filters are boxes that the style reads.

use std::collections::{HashMap, HashSet};

use flagperf_report::rate;
use flagperf_result::{Record, Validity};
use indexmap::IndexMap;
use jiff::Timestamp;
use serde::Serialize;

use super::chart::{Chart, Part, VIEW_BOX};
use super::page::{STYLE, page_in_site, throughput};
use super::result::{Check, ReadResult, text};
use super::template::fill;
use super::words::Language;

const TEMPLATE: &str = include_str!("../templates/site.html");
/// Most series of a history, those of the highest ranks.
const SERIES_MAX: usize = 8;
/// Characters of a digest in the name of a file.
const DIGEST_SHOWN: usize = 12;

/// A page of a site.
pub struct SitePage {
    /// Its path in the site.
    pub path: String,
    /// The text of its file.
    pub html: String,
}

/// A site of results, of which each page is written when it is asked for.
pub struct Site<'r> {
    results: &'r [(ReadResult, Check)],
    language: Language,
    rows: Vec<Row>,
    cases: Vec<Group>,
    vendors: Vec<Group>,
}

/// The results of a case or of a vendor.
struct Group {
    name: String,
    path: String,
    /// The indices of its results, the fastest first.
    results: Vec<usize>,
}

/// A row of a ranking.
#[derive(Clone, Serialize)]
struct Row {
    /// The place among the results that count; empty for any other.
    rank: String,
    /// The path of its page in the site.
    path: String,
    case: String,
    case_path: String,
    vendor: String,
    vendor_path: String,
    cells: Vec<String>,
    validity: &'static str,
    check: &'static str,
    is_wrong: bool,
    /// The classes by which filters choose it.
    classes: String,
}

/// A box that hides rows.
#[derive(Serialize)]
struct Filter {
    id: String,
    label: String,
}

#[derive(Serialize)]
struct Link {
    path: String,
    name: String,
    cells: Vec<String>,
}

#[derive(Serialize)]
struct HistoryChart {
    elements: String,
    legend: Vec<(usize, String)>,
}

/// What the template shows.
#[derive(Serialize)]
struct Values {
    language: &'static str,
    style: &'static str,
    filter_style: String,
    view_box: &'static str,
    title: String,
    /// The way from this page to the root of the site.
    root: &'static str,
    filters: Vec<Filter>,
    rows: Vec<Row>,
    history: Option<HistoryChart>,
    cases: Vec<Link>,
    vendors: Vec<Link>,
}

impl<'r> Site<'r> {
    /// Arranges results, each with what `verify` found.
    pub fn new(results: &'r [(ReadResult, Check)], language: Language) -> Self {
        let mut site = Site { results, language, rows: Vec::new(), cases: Vec::new(), vendors: Vec::new() };
        site.cases = site.groups("case", |record| &record.case);
        site.vendors = site.groups("vendor", |record| &record.vendor);
        let ranks = site.ranks();
        site.rows = (0..results.len()).map(|index| site.row(index, ranks.get(&index).copied())).collect();
        let mut known = HashSet::new();
        for (index, row) in site.rows.iter_mut().enumerate() {
            // The same result may be named twice, and a record alone has no digest.
            if !known.insert(row.path.clone()) {
                row.path = row.path.replace(".html", &format!("-{index}.html"));
            }
        }
        site
    }

    /// Returns the number of pages.
    pub fn page_count(&self) -> usize {
        1 + self.cases.len() + self.vendors.len() + self.results.len()
    }

    /// Returns a page, by its index below [`Site::page_count`].
    pub fn page(&self, index: usize) -> SitePage {
        let (cases, vendors) = (self.cases.len(), self.vendors.len());
        match index {
            0 => SitePage { path: "index.html".to_owned(), html: self.index() },
            index if index <= cases => self.group_page(&self.cases[index - 1], true),
            index if index <= cases + vendors => self.group_page(&self.vendors[index - 1 - cases], false),
            index => {
                let index = index - 1 - cases - vendors;
                let result = std::slice::from_ref(&self.results[index]);
                SitePage { path: self.rows[index].path.clone(), html: page_in_site(result, self.language) }
            }
        }
    }

    fn groups(&self, folder: &str, name: fn(&Record) -> &String) -> Vec<Group> {
        let mut found: IndexMap<&String, Vec<usize>> = IndexMap::new();
        for (index, (result, _)) in self.results.iter().enumerate() {
            found.entry(name(&result.record)).or_default().push(index);
        }
        found.sort_keys();
        let groups = found.into_iter().enumerate().map(|(number, (name, mut results))| {
            let core = |index: &usize| core(&self.results[*index].0.record).unwrap_or(0.0);
            results.sort_by(|a, b| core(b).total_cmp(&core(a)));
            Group { name: text(name), path: format!("{folder}/{}.html", file_name(name, number)), results }
        });
        groups.collect()
    }

    /// Returns the place of each result that is ranked in its case: of each vendor, device, compiler, precision and batch size the newest
    /// one that is valid and that `verify` has not found wrong.
    fn ranks(&self) -> HashMap<usize, usize> {
        let mut ranks = HashMap::new();
        for case in &self.cases {
            let mut newest: HashMap<String, usize> = HashMap::new();
            for index in case.results.iter().copied().filter(|index| counts(&self.results[*index])) {
                let own = newest.entry(configuration(&self.results[index].0.record)).or_insert(index);
                if started(&self.results[index].0.record) > started(&self.results[*own].0.record) {
                    *own = index;
                }
            }
            let ranked = case.results.iter().filter(|index| newest.values().any(|newest| newest == *index));
            ranks.extend(ranked.zip(1..).map(|(index, rank)| (*index, rank)));
        }
        ranks
    }

    fn row(&self, index: usize, rank: Option<usize>) -> Row {
        let (ReadResult { record, digest, .. }, check) = &self.results[index];
        let path_of = |groups: &[Group]| {
            let group = groups.iter().position(|group| group.results.contains(&index));
            group.map_or((0, String::new()), |group| (group, groups[group].path.clone()))
        };
        let ((_, case_path), (vendor, vendor_path)) = (path_of(&self.cases), path_of(&self.vendors));
        let digest: String = digest.iter().flat_map(|digest| digest.chars()).take(DIGEST_SHOWN).collect();
        let mut classes = format!("vendor{vendor}");
        for (class, has) in [
            ("ranked", rank.is_some()),
            ("valid", record.validity.verdict == Validity::Valid),
            ("authentic", check.name() == "authentic"),
        ] {
            if has {
                classes += &format!(" {class}");
            }
        }
        Row {
            rank: rank.map_or_else(String::new, |rank| rank.to_string()),
            path: format!("result/{}.html", file_name(&format!("{}-{digest}", record.run), index)),
            case: text(&record.key()),
            case_path,
            vendor: text(&record.vendor),
            vendor_path,
            cells: cells(record).to_vec(),
            validity: record.validity.verdict.name(),
            check: check.name(),
            is_wrong: check.is_wrong(),
            classes,
        }
    }

    fn index(&self) -> String {
        let link = |group: &Group| {
            let ranked = group.results.iter().filter(|index| !self.rows[**index].rank.is_empty()).count();
            let best = group.results.iter().find(|index| self.rows[**index].rank == "1");
            let best = best.map_or_else(String::new, |best| {
                let (row, record) = (&self.rows[*best], &self.results[*best].0.record);
                format!("{} {}, {}", row.vendor, row.cells[0], throughput_core(record))
            });
            let cells = vec![group.results.len().to_string(), ranked.to_string(), best];
            Link { path: group.path.clone(), name: group.name.clone(), cells }
        };
        let vendor_link = |group: &Group| Link { cells: link(group).cells[..2].to_vec(), ..link(group) };
        let values = Values {
            cases: self.cases.iter().map(link).collect(),
            vendors: self.vendors.iter().map(vendor_link).collect(),
            ..self.values(self.language.word("Results").to_owned(), "")
        };
        fill("site.html", TEMPLATE, values, self.language)
    }

    fn group_page(&self, group: &Group, is_case: bool) -> SitePage {
        let rows: Vec<Row> = group.results.iter().map(|index| self.rows[*index].clone()).collect();
        let (filters, filter_style) = self.filters(&rows, is_case);
        let history = is_case.then(|| self.history(group)).flatten();
        let values = Values { filters, filter_style, rows, history, ..self.values(group.name.clone(), "../") };
        SitePage { path: group.path.clone(), html: fill("site.html", TEMPLATE, values, self.language) }
    }

    fn values(&self, title: String, root: &'static str) -> Values {
        Values {
            language: self.language.code(),
            style: STYLE,
            filter_style: String::new(),
            view_box: VIEW_BOX,
            title,
            root,
            filters: Vec::new(),
            rows: Vec::new(),
            history: None,
            cases: Vec::new(),
            vendors: Vec::new(),
        }
    }

    /// Returns the boxes of a page, and the style by which a checked box hides all other rows.
    fn filters(&self, rows: &[Row], is_case: bool) -> (Vec<Filter>, String) {
        let fixed = [("ranked", "only ranked"), ("valid", "only valid"), ("authentic", "only authentic")];
        let mut filters: Vec<Filter> = fixed
            .into_iter()
            .map(|(id, label)| Filter { id: id.to_owned(), label: self.language.word(label).to_owned() })
            .collect();
        let mut style = String::new();
        for (id, _) in fixed {
            style += &format!("body:has(#{id}:checked) tbody tr:not(.{id}){{display:none}}");
        }
        if is_case {
            let mut shown: Vec<(usize, &str)> = Vec::new();
            for (number, vendor) in self.vendors.iter().enumerate() {
                if rows.iter().any(|row| row.vendor == vendor.name) {
                    shown.push((number, &vendor.name));
                }
            }
            // Rows of a vendor are shown if its box is checked, or no vendor's box is.
            let hides = |own: usize| {
                format!("body:has(.vendors:checked):not(:has(#vendor{own}:checked)) tr.vendor{own}{{display:none}}")
            };
            style.extend(shown.iter().map(|(number, _)| hides(*number)));
            filters.extend(
                shown
                    .into_iter()
                    .map(|(number, name)| Filter { id: format!("vendor{number}"), label: name.to_owned() }),
            );
        }
        (filters, style)
    }

    /// Draws the throughput of the results of a case that are neither invalid nor wrong, by the time at which they began.
    fn history(&self, case: &Group) -> Option<HistoryChart> {
        let mut series: IndexMap<String, Vec<(f64, f64)>> = IndexMap::new();
        for (result, check) in case.results.iter().map(|index| &self.results[*index]) {
            let record = &result.record;
            if record.validity.verdict == Validity::Invalid || check.is_wrong() {
                continue;
            }
            if let (Some(time), Some(core)) = (started(record), core(record)) {
                series.entry(configuration(record)).or_default().push((time as f64, core));
            }
        }
        series.retain(|_, points| points.len() > 1);
        series.truncate(SERIES_MAX);
        let all: Vec<(f64, f64)> = series.values().flatten().copied().collect();
        let first = all.iter().map(|point| point.0).reduce(f64::min)?;
        let last = all.iter().copied().reduce(|a, b| (a.0.max(b.0), a.1.max(b.1)))?;
        let mut parts = Vec::new();
        for (colour, points) in series.values_mut().enumerate() {
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            parts.extend([Part::Line(points.clone(), colour), Part::Dots(points.clone(), colour)]);
        }
        let chart = Chart {
            x: first..last.0,
            y: 0.0..last.1 * 1.05,
            x_label: |time| {
                let date = Timestamp::from_second(time as i64).map(|time| time.strftime("%Y-%m-%d").to_string());
                date.unwrap_or_default()
            },
            y_label: |value| rate(flagperf_core::units::SamplesPerSecond(value)),
            parts,
        };
        let legend = series.keys().enumerate().map(|(colour, name)| (colour, text(name))).collect();
        Some(HistoryChart { elements: chart.elements(), legend })
    }
}

/// Returns whether a result may be ranked.
fn counts((result, check): &(ReadResult, Check)) -> bool {
    result.record.validity.verdict == Validity::Valid && !check.is_wrong() && core(&result.record).is_some()
}

/// Returns the throughput by which results are ranked, that of *core*.
fn core(record: &Record) -> Option<f64> {
    record.measured_loops().next_back()?.throughput_core_samples_per_s.map(|core| core.0)
}

fn throughput_core(record: &Record) -> String {
    let measured = record.measured_loops().next_back();
    throughput(measured.and_then(|measured| measured.throughput_core_samples_per_s), &record.unit)
}

/// Returns when a case began, in seconds since 1970.
fn started(record: &Record) -> Option<i64> {
    record.started.parse::<Timestamp>().ok().map(Timestamp::as_second)
}

/// Returns what distinguishes the ranked results of a case.
fn configuration(record: &Record) -> String {
    let device = record.headline_device().map_or("", |device| &device.name);
    let info = &record.finish_info;
    let compiler = info.compiler.as_deref().unwrap_or(&record.framework);
    [&record.vendor, device, compiler, &info.precision, &info.batchsize.to_string()].join(", ")
}

/// Returns device, compiler, precision, batch size, throughput, accuracy, begin and departures.
fn cells(record: &Record) -> [String; 8] {
    let measured = record.measured_loops().next_back();
    let whole = measured.and_then(|measured| measured.throughput_whole_samples_per_s);
    [
        record.headline_device().map(|device| device.name.clone()).unwrap_or_default(),
        record.finish_info.compiler.clone().unwrap_or_else(|| record.framework.clone()),
        record.finish_info.precision.clone(),
        record.finish_info.batchsize.to_string(),
        throughput_core(record),
        throughput(whole, &record.unit),
        record.started.chars().take("2026-01-01".len()).collect(),
        record.departures.join(" "),
    ]
    .map(|cell| text(&cell))
}

/// Returns a name for a file, in which other characters than letters, digits, `-` and `_` are replaced; the number makes it unique.
fn file_name(name: &str, number: usize) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let plain: String = name.chars().take(64).map(|c| if is_plain(c) { c } else { '_' }).collect();
    if plain == name && !plain.is_empty() { plain } else { format!("{plain}-{number}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagperf_result::testing;

    /// A result of a vendor with a throughput and a time.
    fn result(vendor: &str, core: f64, started: &str, validity: Validity) -> (ReadResult, Check) {
        let mut record = testing::record();
        record.vendor = vendor.to_owned();
        record.started = started.to_owned();
        record.validity.verdict = validity;
        for measured in record.phases.iter_mut().flat_map(|phase| &mut phase.measured) {
            measured.throughput_core_samples_per_s = Some(flagperf_core::units::SamplesPerSecond(core));
        }
        (
            ReadResult { path: "r/record.json".into(), record, digest: Some("0123456789abcdef".to_owned()) },
            Check::TooLarge,
        )
    }

    fn results() -> Vec<(ReadResult, Check)> {
        vec![
            result("slow", 10.0, "2026-01-01T00:00:00Z", Validity::Valid),
            result("fast", 30.0, "2026-01-01T00:00:00Z", Validity::Valid),
            result("fast", 20.0, "2026-02-01T00:00:00Z", Validity::Valid),
            result("fastest", 99.0, "2026-03-01T00:00:00Z", Validity::Unofficial),
            result("<b>&\u{1b}[2J", 5.0, "2026-03-01T00:00:00Z", Validity::Invalid),
        ]
    }

    #[test]
    fn the_newest_valid_result_of_each_configuration_is_ranked() {
        let results = results();
        let site = Site::new(&results, Language::English);
        let ranks: Vec<&str> = site.rows.iter().map(|row| row.rank.as_str()).collect();
        assert_eq!(ranks, ["2", "", "1", "", ""], "30 was measured before 20, and 99 is not official");
        assert_eq!(site.cases[0].results, [3, 1, 2, 0, 4], "all are listed, the fastest first");
    }

    #[test]
    fn every_page_exists_once_and_every_link_leads_to_one() {
        let results = results();
        for language in [Language::English, Language::Chinese] {
            let site = Site::new(&results, language);
            let pages: Vec<SitePage> = (0..site.page_count()).map(|index| site.page(index)).collect();
            let paths: std::collections::BTreeSet<&str> = pages.iter().map(|page| page.path.as_str()).collect();
            assert_eq!(paths.len(), 1 + 1 + 4 + 5, "{paths:?}");
            for page in &pages {
                let html = page.html.replace("&#x2f;", "/");
                let links = html.split("href=\"").skip(1).filter_map(|rest| rest.split_once('"'));
                for (link, _) in links.filter(|(link, _)| !link.starts_with('#')) {
                    let target = link.strip_prefix("../").unwrap_or(link);
                    assert_eq!(link.starts_with("../"), page.path.contains('/'), "{}: {link}", page.path);
                    assert!(paths.contains(target), "{}: {link}", page.path);
                }
                assert!(!page.html.contains("<b>") && !page.html.contains('\u{1b}'), "{}", page.path);
                assert!(page.html.contains("default-src 'none'") && !page.html.contains("<script"), "{}", page.path);
            }
        }
    }

    #[test]
    fn the_history_of_a_case_has_a_line_for_each_configuration_that_was_measured_again() {
        let results = results();
        let site = Site::new(&results, Language::English);
        let history = site.history(&site.cases[0]).unwrap();
        let names: Vec<&str> = history.legend.iter().map(|(_, name)| name.as_str()).collect();
        assert!(names.len() == 1 && names[0].starts_with("fast, "), "{names:?}");
        assert!(history.elements.contains("2026-01-"), "{}", history.elements);
    }

    #[test]
    fn other_characters_are_replaced_in_the_name_of_a_file() {
        let names = [("resnet50", 3), ("../../etc", 3), ("", 0)].map(|(name, number)| file_name(name, number));
        assert_eq!(names, ["resnet50", "______etc-3", "-0"]);
    }
}
