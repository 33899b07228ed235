//! The network card by which the processes that train together reach each other: the one that `INTERFACE` of host.yaml selects.
//! Without it, each process uses the card of the route to the others.

use std::net::IpAddr;

use flagperf_config::list_names;
use ipnet::IpNet;
use nix::ifaddrs::getifaddrs;
use serde::{Deserialize, Serialize};

/// An address of a network card of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostAddress {
    /// The name of the network card on that host: `eth0`.
    pub interface: String,
    pub address: IpAddr,
}

/// Returns the addresses of this machine; none if the system does not list them.
pub(super) fn own_addresses() -> Vec<HostAddress> {
    let address = |found: nix::ifaddrs::InterfaceAddress| {
        let storage = found.address?;
        let of_v4 = storage.as_sockaddr_in().map(|address| IpAddr::from(address.ip()));
        let address = of_v4.or_else(|| storage.as_sockaddr_in6().map(|address| address.ip().into()))?;
        Some(HostAddress { interface: found.interface_name, address })
    };
    getifaddrs().into_iter().flatten().filter_map(address).collect()
}

/// Returns the address of a host that `choice` selects: the name of a network card, a network such as `10.1.0.0/16`, or an address.
///
/// # Errors
/// When the host has no such address; the text lists those that it has.
pub(super) fn chosen_address(choice: &str, known: &[HostAddress]) -> Result<HostAddress, String> {
    let network = choice.parse().ok().or_else(|| choice.parse().ok().map(<IpNet as From<IpAddr>>::from));
    let is_chosen = |found: &&HostAddress| {
        found.interface == choice || network.is_some_and(|network: IpNet| network.contains(&found.address))
    };
    // An address that holds on one link only means nothing without the name of a card.
    let is_usable = |found: &&HostAddress| !matches!(found.address, IpAddr::V6(own) if own.is_unicast_link_local());
    let mut found: Vec<&HostAddress> = known.iter().filter(is_chosen).filter(is_usable).collect();
    found.sort_by_key(|found| found.address.is_ipv6());
    found.first().map(|found| (*found).clone()).ok_or_else(|| {
        let known: Vec<String> = known.iter().map(|own| format!("{} {}", own.interface, own.address)).collect();
        let known = list_names(known.iter().map(String::as_str));
        format!("it has no network card or address `{choice}`, which `INTERFACE` in host.yaml selects (known: {known})")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_is_selected_by_its_name_its_network_or_its_address() {
        let known =
            [("lo", "127.0.0.1"), ("eth0", "fe80::1"), ("eth0", "fd00::7"), ("eth0", "10.0.0.7"), ("ib0", "10.1.3.7")];
        let known = known.map(|(name, own)| HostAddress { interface: name.to_owned(), address: own.parse().unwrap() });
        let chosen = |choice: &str| chosen_address(choice, &known).map(|found| found.address.to_string());
        assert_eq!(chosen("eth0").as_deref(), Ok("10.0.0.7"), "IPv4 comes first");
        assert_eq!(chosen("10.1.0.0/16").as_deref(), Ok("10.1.3.7"));
        assert_eq!(chosen("fd00::/8").as_deref(), Ok("fd00::7"));
        assert_eq!(chosen("127.0.0.1").as_deref(), Ok("127.0.0.1"));
        assert!(chosen("fe80::/10").unwrap_err().contains("(known: lo 127.0.0.1, eth0 fe80::1, "), "one link only");
        assert!(own_addresses().iter().any(|own| own.address.is_loopback()));
    }
}
