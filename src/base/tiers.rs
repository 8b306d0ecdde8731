//! The three tiers as plain data: one value per tier, bytes per link, page counts of a step.

/// One value per tier.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Tiers<T> {
    /// GPU memory
    pub vram: T,
    /// CPU memory
    pub ram: T,
    /// disk
    pub disk: T,
}

/// Bytes moved over each link between tiers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct MovedBytes {
    /// reads from the store
    pub disk_to_ram: u64,
    /// uploads
    pub ram_to_vram: u64,
    /// readbacks
    pub vram_to_ram: u64,
    /// writes to the store
    pub ram_to_disk: u64,
}

/// Pages that attention needed, by how they got to VRAM.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PageCounts {
    /// in VRAM already
    pub resident: u64,
    /// fetched to VRAM
    pub fetched: u64,
    /// recomputed
    pub recomputed: u64,
    /// skipped by a policy
    pub skipped: u64,
}

/// Bandwidth limits for transfers, bytes per second; a benchmark uses them to simulate slower links.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct LinkLimits {
    /// RAM to VRAM and back
    pub pcie: Option<u64>,
    /// disk to RAM and back
    pub nvme: Option<u64>,
}

/// A text not of the form `pcie=2GiB,nvme=500MiB`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a link limit. Write it as pcie=2GiB,nvme=500MiB (bytes per second)")]
pub struct ParseLinkLimitsError(pub String);

impl std::str::FromStr for LinkLimits {
    type Err = ParseLinkLimitsError;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let error = || ParseLinkLimitsError(s.to_owned());
        let mut limits = LinkLimits::default();
        for part in s.split(',') {
            let (name, speed) = part.split_once('=').ok_or_else(error)?;
            let speed: super::Bytes = speed.trim_end_matches("/s").parse().map_err(|_| error())?;
            if speed.0 == 0 {
                return Err(error());
            }
            match name.trim() {
                "pcie" => limits.pcie = Some(speed.0),
                "nvme" => limits.nvme = Some(speed.0),
                _ => return Err(error()),
            }
        }
        Ok(limits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_limits_as_people_write_them_are_parsed() {
        let limits: LinkLimits = "pcie=2GiB,nvme=500MiB/s".parse().unwrap();
        assert_eq!(limits, LinkLimits { pcie: Some(2 << 30), nvme: Some(500 << 20) });
        assert_eq!("nvme=1GB".parse(), Ok(LinkLimits { pcie: None, nvme: Some(1_000_000_000) }));
        for bad in ["", "pcie", "pcie=", "pcie=0", "usb=1GiB", "pcie=1GiB;nvme=1GiB"] {
            assert!(bad.parse::<LinkLimits>().is_err(), "{bad}");
        }
    }
}
