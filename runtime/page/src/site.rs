//! Writes a site of results: a ranking and a history for each case, a page for each vendor, each result, and each sum over several devices.
//! No page needs a server or a script; filters are boxes that the style reads.

mod address;
mod history;
mod ranking;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use flagperf_comparison::Pareto;
use flagperf_report::queries_text;
use flagperf_result::{Record, Validity, measured_scenario};
use indexmap::IndexMap;
use serde::Serialize;

use self::address::{file_name, result_path, sum_path};
use self::history::{HistoryChart, history};
use self::ranking::{Place, by_queries, by_throughput, places};
use super::chart::VIEW_BOX;
use super::entry::{CheckedResult, Entry};
use super::page::{Content, STYLE, page_of, throughput};
use super::result::text;
use super::roofline::Roofline;
use super::summary::ReadSummary;
use super::template::fill;
use super::words::Language;

pub use self::address::without_copies;

const TEMPLATE: &str = include_str!("../templates/site.html");

/// A page of a site.
pub struct SitePage {
    /// Its path in the site.
    pub path: String,
    /// The text of its file.
    pub html: String,
}

/// A site of results, of which each page is written when it is asked for.
pub struct Site<'r> {
    results: &'r [CheckedResult],
    /// The path of the page of each result.
    paths: Vec<String>,
    language: Language,
    /// What competes: the sums over several devices, and then the results that are in none of them.
    entries: Vec<Entry<'r>>,
    rows: Vec<Row>,
    cases: Vec<Group>,
    vendors: Vec<Group>,
    /// The entry of each result in a sum.
    sums: HashMap<usize, usize>,
}

/// The entries of a case or of a vendor.
struct Group {
    name: String,
    path: String,
    /// Their indices: by case, by number of devices, and the fastest first.
    entries: Vec<usize>,
}

/// A row of a ranking.
#[derive(Clone, Serialize)]
struct Row {
    /// The place by throughput, and that by queries/s.
    ranks: [Rank; 2],
    /// The path of its page in the site.
    path: String,
    key: String,
    case: String,
    case_path: String,
    vendor: String,
    vendor_path: String,
    /// What was measured, and its throughput.
    cells: Vec<String>,
    /// The scenario, the rate of its queries, and their latency.
    scenario: Vec<String>,
    /// The begin, and the departures.
    origin: [String; 2],
    validity: &'static str,
    check: &'static str,
    is_wrong: bool,
    /// The classes by which filters choose it.
    classes: String,
}

/// The place in a ranking as a number, or in its stead why there is none.
#[derive(Clone, Default, Serialize)]
struct Rank {
    number: String,
    reason: String,
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
    is_case: bool,
    has_scenarios: bool,
    filters: Vec<Filter>,
    rows: Vec<Row>,
    history: Option<HistoryChart>,
    cases: Vec<Link>,
    vendors: Vec<Link>,
}

impl<'r> Site<'r> {
    /// Arranges results, each with what `verify` found, and the sums over several devices that were read with them.
    pub fn new(results: &'r [CheckedResult], summaries: &'r [ReadSummary], language: Language) -> Self {
        let of_sum = |(sum, read): (usize, &'r ReadSummary)| read.replicas.iter().map(move |result| (*result, sum));
        let sums: HashMap<usize, usize> = summaries.iter().enumerate().flat_map(of_sum).collect();
        let alone = results.iter().enumerate().filter(|(index, _)| !sums.contains_key(index));
        let of_summaries = summaries.iter().map(|summary| Entry::of_summary(summary, results));
        let entries: Vec<Entry> = of_summaries.chain(alone.map(|(_, result)| Entry::of_result(result))).collect();
        let paths = results.iter().map(|(result, _)| result_path(result)).collect();
        let mut site =
            Site { results, paths, language, entries, rows: Vec::new(), cases: Vec::new(), vendors: Vec::new(), sums };
        site.cases = site.groups("case", |record| &record.case);
        site.vendors = site.groups("vendor", |record| &record.vendor);
        let of_cases = |compete| {
            let places = site.cases.iter().map(|case| places(&site.entries, &case.entries, compete));
            places.flatten().collect::<HashMap<usize, Place>>()
        };
        let ranks = [of_cases(by_throughput), of_cases(by_queries)];
        site.rows =
            (0..site.entries.len()).map(|index| site.row(index, ranks.each_ref().map(|of| of[&index]))).collect();
        site
    }

    /// Returns the number of pages.
    pub fn page_count(&self) -> usize {
        1 + self.cases.len() + self.vendors.len() + self.results.len() + self.sum_count()
    }

    /// Returns the number of sums over several devices, which are the first entries.
    fn sum_count(&self) -> usize {
        self.entries.iter().take_while(|entry| entry.summary.is_some()).count()
    }

    /// Returns a page, by its index below [`Site::page_count`].
    pub fn page(&self, index: usize) -> SitePage {
        let (cases, vendors, results) = (self.cases.len(), self.vendors.len(), self.results.len());
        match index {
            0 => SitePage { path: "index.html".to_owned(), html: self.index() },
            index if index <= cases => self.group_page(&self.cases[index - 1], true),
            index if index <= cases + vendors => self.group_page(&self.vendors[index - 1 - cases], false),
            index if index <= cases + vendors + results => self.result_page(index - 1 - cases - vendors),
            index => self.sum_page(index - 1 - cases - vendors - results),
        }
    }

    fn result_page(&self, index: usize) -> SitePage {
        let result = &self.results[index];
        let sum = self.sums.get(&index).map(|sum| {
            let (row, entry) = (&self.rows[*sum], &self.entries[*sum]);
            (format!("../{}", row.path), format!("{}, {}", row.key, entry.place(self.language)))
        });
        let content = Content {
            rows: vec![(Entry::of_result(result), "#result-1".to_owned())],
            sections: vec![result],
            site: self.links(&result.0.record).into_iter().chain(sum).collect(),
            ..Content::default()
        };
        self.page_with(self.paths[index].clone(), content)
    }

    /// Returns the page of a sum, which leads to those of its results.
    fn sum_page(&self, index: usize) -> SitePage {
        let entry = &self.entries[index];
        let replicas = entry.summary.map_or(&[][..], |read| &read.replicas);
        let of_replicas = replicas
            .iter()
            .map(|index| (Entry::of_result(&self.results[*index]), format!("../{}", self.paths[*index])));
        let sum = (entry.clone(), "#sum-1".to_owned());
        let content = Content {
            rows: std::iter::once(sum).chain(of_replicas).collect(),
            site: self.links(entry.record()),
            ..Content::default()
        };
        self.page_with(self.rows[index].path.clone(), content)
    }

    fn page_with(&self, path: String, content: Content) -> SitePage {
        SitePage { path, html: page_of(content, (&Pareto::default(), &Roofline::default()), self.language) }
    }

    /// Returns the links from a result to the pages of its case and of its vendor.
    fn links(&self, record: &Record) -> Vec<(String, String)> {
        let of = |groups: &[Group], name: &str| {
            let group = groups.iter().find(|group| group.name == text(name));
            group.map(|group| (format!("../{}", group.path), group.name.clone()))
        };
        [of(&self.cases, &record.case), of(&self.vendors, &record.vendor)].into_iter().flatten().collect()
    }

    fn groups(&self, folder: &str, name: fn(&Record) -> &String) -> Vec<Group> {
        let mut found: IndexMap<&String, Vec<usize>> = IndexMap::new();
        for (index, entry) in self.entries.iter().enumerate() {
            found.entry(name(entry.record())).or_default().push(index);
        }
        found.sort_keys();
        let order = |a: &usize, b: &usize| {
            let [a, b] = [a, b].map(|index| &self.entries[*index]);
            let core = |entry: &Entry| entry.core().map_or(0.0, |core| core.0);
            let group = |entry: &Entry<'r>| (&entry.record().case, entry.devices());
            group(a).cmp(&group(b)).then(core(b).total_cmp(&core(a)))
        };
        let groups = found.into_iter().map(|(name, mut entries)| {
            entries.sort_by(order);
            Group { name: text(name), path: format!("{folder}/{}.html", file_name(name)), entries }
        });
        groups.collect()
    }

    fn row(&self, index: usize, places: [Place; 2]) -> Row {
        let entry = &self.entries[index];
        let record = entry.record();
        let group = |groups: &[Group]| groups.iter().position(|group| group.entries.contains(&index)).unwrap_or(0);
        let (case, vendor) = (&self.cases[group(&self.cases)], group(&self.vendors));
        let mut classes = format!("vendor{vendor}");
        for (class, has) in [
            ("ranked", places.iter().any(|place| matches!(place, Place::Rank(_)))),
            ("valid", entry.validity() == Validity::Valid),
            ("authentic", entry.check_name() == "authentic"),
        ] {
            if has {
                classes += &format!(" {class}");
            }
        }
        let rank = |place| match place {
            Place::Rank(rank) => Rank { number: rank.to_string(), ..Rank::default() },
            Place::Unranked("") => Rank::default(),
            Place::Unranked(reason) => Rank { reason: self.language.word(reason).to_owned(), ..Rank::default() },
        };
        let results: Vec<String> = entry.results.iter().map(|(result, _)| result_path(result)).collect();
        let path = match entry.summary {
            Some(read) => sum_path(&record.run, &read.sha256, &results.iter().map(String::as_str).collect::<Vec<_>>()),
            None => results.into_iter().next().unwrap_or_default(),
        };
        Row {
            ranks: places.map(rank),
            path,
            key: entry.key(),
            case: case.name.clone(),
            case_path: case.path.clone(),
            vendor: self.vendors[vendor].name.clone(),
            vendor_path: self.vendors[vendor].path.clone(),
            cells: cells(entry, self.language),
            scenario: scenario_cells(entry),
            origin: [entry.started().chars().take("2026-01-01".len()).collect(), record.departures.join(" ")]
                .map(|cell| text(&cell)),
            validity: entry.validity().name(),
            check: entry.check_name(),
            is_wrong: entry.is_wrong(),
            classes,
        }
    }

    fn index(&self) -> String {
        let link = |group: &Group| {
            let rank = |index: &usize| self.rows[*index].ranks[0].number.as_str();
            let is_ranked = |index: &usize| self.rows[*index].ranks.iter().any(|rank| !rank.number.is_empty());
            let ranked = group.entries.iter().filter(|index| is_ranked(index)).count();
            // The fastest of each number of devices.
            let best = group.entries.iter().filter(|index| rank(index) == "1").map(|index| {
                let (row, entry) = (&self.rows[*index], &self.entries[*index]);
                let scale = entry.scale().map_or_else(String::new, |scale| format!(" {scale}"));
                format!("{} {}{scale}, {}", row.vendor, row.cells[0], row.cells[THROUGHPUT_CELL])
            });
            let best = best.collect::<Vec<_>>().join("; ");
            let cells = vec![group.entries.len().to_string(), ranked.to_string(), best];
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
        let rows: Vec<Row> = group.entries.iter().map(|index| self.rows[*index].clone()).collect();
        let (filters, filter_style) = self.filters(&rows, is_case);
        let history = is_case.then(|| history(group.entries.iter().map(|index| &self.entries[*index]))).flatten();
        let has_scenarios = rows.iter().any(|row| !row.scenario[0].is_empty());
        let values = Values {
            filters,
            filter_style,
            rows,
            history,
            is_case,
            has_scenarios,
            ..self.values(group.name.clone(), "../")
        };
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
            is_case: false,
            has_scenarios: false,
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
}

/// The place of the throughput in the cells of a row.
const THROUGHPUT_CELL: usize = 5;

/// Returns device, number of devices, compiler, precision, batch size, and both throughputs.
fn cells(entry: &Entry, language: Language) -> Vec<String> {
    let record = entry.record();
    let compiler = record.finish_info.compiler.as_ref().unwrap_or(&record.framework);
    vec![
        entry.device_names(),
        entry.devices_text(language),
        text(compiler),
        text(&record.finish_info.precision),
        record.finish_info.batchsize.to_string(),
        throughput(entry.core(), &record.unit),
        throughput(entry.whole(), &record.unit),
    ]
}

/// Returns the kind of a scenario, the rate of its queries and their latency, which are empty without one and for a sum.
fn scenario_cells(entry: &Entry) -> Vec<String> {
    let found = measured_scenario(entry.record()).filter(|_| entry.summary.is_none());
    let kind = found.and_then(|(figures, _)| Some(figures.report.as_ref()?.scenario.kind.name()));
    match kind.zip(queries_text(entry.record())) {
        Some((kind, [queries, latency])) => vec![kind.to_owned(), queries, text(&latency)],
        None => vec![String::new(); 3],
    }
}
