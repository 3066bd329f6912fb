//! Whether a database is one that this version can work on, as far as its migrations tell.

/// Compares the migrations that were applied to a database with those that this version knows.
///
/// # Errors
/// When an applied one is unknown; the text says what that means.
pub(super) fn check(applied: &[String], known: &[String]) -> Result<(), String> {
    let unknown: Vec<_> = applied.iter().filter(|one| !known.contains(one)).collect();
    let Some(first) = unknown.first() else {
        return Ok(());
    };
    if applied.iter().any(|one| known.contains(one)) {
        Err(format!(
            "the database was made by a newer version of buzz-relay (migration {first}); it is left as it is"
        ))
    } else {
        Err(format!(
            "the database belongs to another program (migration {first}); it is left as it is"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kills: only the number of migrations compared; any unknown one taken for a newer version's.
    #[test]
    fn what_this_version_does_not_know_is_refused() {
        let list = |versions: &[&str]| {
            let versions = versions.iter().map(|version| (*version).to_owned());
            versions.collect::<Vec<_>>()
        };
        let known = list(&["0001", "0002"]);
        for applied in [&[][..], &["0001"], &["0001", "0002"]] {
            assert_eq!(check(&list(applied), &known), Ok(()));
        }
        let why = check(&list(&["0001", "0003"]), &known).expect_err("refused");
        assert!(why.contains("newer") && why.contains("0003"), "{why}");
        let why = check(&list(&["20240101"]), &known).expect_err("refused");
        assert!(why.contains("another program"), "{why}");
    }
}
