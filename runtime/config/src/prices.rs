//! A file with prices of devices, from which `flagperf pareto` computes what tokens cost.

use std::path::Path;

use indexmap::IndexMap;

use super::file::ConfigFile;
use super::section::{SectionKind, TEXT, read_section, section};
use super::vendor::driver_name;
use super::{Finding, ValueKind, list_names};

section! {
    /// Prices of devices.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Prices {
        /// the currency of all prices, such as `USD`
        required(TEXT) currency: String,
        /// the devices by the names that results state, in any letter case: `NVIDIA H200`, the model of a processor, or `server`
        /// for the devices behind an address
        required(SectionKind::Sections(DevicePrice::KEYS)) devices: IndexMap<String, DevicePrice>,
        own {
            file: Option<ConfigFile>,
        }
    }
}

section! {
    /// The price of a device.
    #[derive(Clone, Debug, PartialEq)]
    pub struct DevicePrice {
        /// the price of one device for an hour
        required(SectionKind::Value(ValueKind::PositiveNumber)) per_hour: f64,
        /// where the price is from, and what it includes
        required(TEXT) source: String,
    }
}

impl Prices {
    /// Reads a file of prices, which messages call by its path.
    ///
    /// # Errors
    /// When the file cannot be read, a key is unknown or missing, or a value is of the wrong type.
    pub fn read(path: &Path) -> Result<Self, Finding> {
        let file = ConfigFile::read_as(path, path.display().to_string().into())?;
        let prices: Prices = read_section(&file, Prices::KEYS)?;
        if prices.currency.trim().is_empty() {
            let origin = file.entries.get("currency").map_or_else(|| file.top(), |node| file.origin(node));
            return Err(Finding::error(origin, "`currency` is empty"));
        }
        let folded: Vec<String> = prices.devices.keys().map(|name| name.trim().to_ascii_lowercase()).collect();
        if let Some(twice) = (1..folded.len()).find(|index| folded[..*index].contains(&folded[*index])) {
            let origin = file.entries.get("devices").map_or_else(|| file.top(), |node| file.origin(node));
            return Err(Finding::error(origin, format!("`devices` has a price of `{}` twice", folded[twice])));
        }
        Ok(Prices { file: Some(file), ..prices })
    }

    /// Returns the price of a device that has one of these names, in the order of the names.
    ///
    /// # Errors
    /// When none of the names has a price; the hint says what to add.
    pub fn of_device(&self, names: &[&str]) -> Result<&DevicePrice, Finding> {
        let names: Vec<&str> = names.iter().map(|name| driver_name(name)).filter(|name| !name.is_empty()).collect();
        let find = |name: &&str| self.devices.iter().find(|(known, _)| known.trim().eq_ignore_ascii_case(name));
        if let Some((_, price)) = names.iter().find_map(find) {
            return Ok(price);
        }
        let known = list_names(self.devices.keys().map(String::as_str));
        let name = names.first().copied().unwrap_or_default();
        let finding = Finding::unplaced(format!("no price of the device `{name}` (known: {known})"))
            .with_hint(format!("add it under `devices`: `{name}: {{per_hour: PRICE, source: WHERE}}`"));
        let file = self.file.as_ref();
        let place = file.and_then(|file| Some(file.origin(file.entries.get("devices")?)));
        Err(place.into_iter().fold(finding, Finding::at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Prices, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("prices.yaml");
        std::fs::write(&path, text).unwrap();
        let shown = format!("{}/", folder.path().display());
        Prices::read(&path).map_err(|finding| finding.to_string().replace(&shown, ""))
    }

    const TWO: &str =
        "currency: USD\ndevices:\n  Chip X2: {per_hour: 3.5, source: a list}\n  cpu: {per_hour: 0.1, source: b}\n";

    #[test]
    fn a_device_is_found_by_the_name_of_its_driver_in_any_letter_case() {
        let prices = read(TWO).unwrap();
        assert_eq!(prices.of_device(&["cuda:0 chip x2"]).unwrap().per_hour, 3.5);
        assert_eq!(prices.of_device(&["Model 9 CPU @ 2 GHz", "cpu"]).unwrap().per_hour, 0.1);
    }

    #[test]
    fn an_unknown_device_is_an_error_that_says_what_to_add() {
        let error = read(TWO).unwrap().of_device(&["cuda:0 Chip X3"]).unwrap_err().to_string();
        assert!(error.contains("prices.yaml:"), "{error}");
        assert!(error.contains("no price of the device `Chip X3` (known: Chip X2, cpu)"), "{error}");
        assert!(error.contains("`Chip X3: {per_hour: PRICE, source: WHERE}`"), "{error}");
    }

    #[test]
    fn a_file_without_a_currency_or_with_an_impossible_price_is_refused() {
        for (text, expected) in [
            ("devices: {}\n", "`currency`"),
            ("currency: ''\ndevices: {}\n", "prices.yaml:1: `currency` is empty"),
            ("currency: USD\ndevices: {a: {per_hour: 0, source: b}}\n", "prices.yaml:2: `devices.a.per_hour` must be"),
            ("currency: USD\ndevices: {a: {per_hour: .nan, source: b}}\n", "is not a finite number"),
            (
                "currency: USD\ndevices: {a: {per_hour: 1, source: b}, A: {per_hour: 2, source: b}}\n",
                "prices.yaml:2: `devices` has a price of `a` twice",
            ),
            ("currency: USD\ndevices: {a: {per_hours: 1, source: b}}\n", "unknown key `devices.a.per_hours`"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
