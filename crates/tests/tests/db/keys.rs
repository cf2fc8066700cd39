//! API keys.

use jiff::{SignedDuration, Timestamp};
use odc_store::Store;
use odc_store::key::{Created, NewKey};
use odc_store::listen::Notification;
use odc_store::user::User;
use odc_tests::{DatabaseRole, with_migrated_database};
use uuid::Uuid;

use crate::fixture::{actor, administrator, count, entry, execute, origin, value};
use crate::notifications::next;

const DAY: SignedDuration = SignedDuration::from_hours(24);

async fn create(store: &Store, id: &str, lifetime: SignedDuration) -> odc_store::Result<Created> {
    let scopes = ["servers:write".to_owned()];
    let key = NewKey {
        id,
        user: "ada",
        hash: [7; 32],
        description: "laptop",
        scopes: &scopes,
        expires_at: Timestamp::now() + lifetime,
    };
    store.create_key(&key, 3, &entry(&actor(), &origin(), "key.create")).await
}

#[tokio::test]
async fn created_key_is_found_listed_and_audited() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        let store = database.store(DatabaseRole::Api)?;
        assert_eq!(create(&store, "aaaaaaaaaaa1", DAY).await?, Created::Created);
        let credential = store.find_credential("aaaaaaaaaaa1").await?.unwrap();
        assert_eq!((credential.user.as_str(), credential.hash), ("ada", [7; 32]));
        assert_eq!(credential.scopes, ["servers:write"]);
        assert!(store.find_credential("aaaaaaaaaaa2").await?.is_none());
        store.record_key_uses(&["aaaaaaaaaaa1".to_owned()]).await?;
        let keys = store.list_keys("ada", 10).await?;
        assert_eq!((keys.len(), keys[0].created_by.as_str()), (1, "ada"));
        assert!(keys[0].last_used_at.is_some());
        assert!(store.list_keys("bob", 10).await?.is_empty());
        let sql = &mut administrator(database).await?;
        let audited = value(sql, "SELECT action || ' ' || object_name FROM audit_log").await?;
        assert_eq!(audited, "key.create aaaaaaaaaaa1");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn key_lives_at_most_90_days() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        let store = database.store(DatabaseRole::Api)?;
        let error = create(&store, "aaaaaaaaaaa1", DAY * 91).await.unwrap_err();
        assert!(error.violates("api_keys_check"), "{error:?}");
        assert!(create(&store, "aaaaaaaaaaa1", -DAY).await.unwrap_err().violates("api_keys_check"));
        assert_eq!(create(&store, "aaaaaaaaaaa1", DAY * 89).await?, Created::Created);
        let sql = &mut administrator(database).await?;
        assert_eq!(count(sql, "audit_log").await?, 1, "only the key that was created");
        execute(
            sql,
            "UPDATE api_keys SET created_at = now() - interval '2 days', expires_at = now() - interval '1 day'",
        )
        .await?;
        assert!(store.find_credential("aaaaaaaaaaa1").await?.is_none(), "expired");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn user_has_a_limited_number_of_valid_keys() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        let store = database.store(DatabaseRole::Api)?;
        for id in ["aaaaaaaaaaa1", "aaaaaaaaaaa2", "aaaaaaaaaaa3"] {
            assert_eq!(create(&store, id, DAY).await?, Created::Created);
        }
        assert_eq!(create(&store, "aaaaaaaaaaa4", DAY).await?, Created::TooMany);
        let sql = &mut administrator(database).await?;
        assert_eq!(count(sql, "audit_log").await?, 3);
        store.revoke_key("ada", "aaaaaaaaaaa1", &entry(&actor(), &origin(), "key.revoke")).await?;
        assert_eq!(create(&store, "aaaaaaaaaaa4", DAY).await?, Created::Created);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn revocation_notifies_and_is_recorded_once() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        let store = database.store(DatabaseRole::Api)?;
        create(&store, "aaaaaaaaaaa1", DAY).await?;
        let mut listener = store.listen_for_key_changes().await?;
        let (actor, origin) = (actor(), origin());
        let revoke = entry(&actor, &origin, "key.revoke");
        assert!(!store.revoke_key("bob", "aaaaaaaaaaa1", &revoke).await?, "a key of another user");
        // A use is not a change.
        store.record_key_uses(&["aaaaaaaaaaa1".to_owned()]).await?;
        assert!(store.revoke_key("ada", "aaaaaaaaaaa1", &revoke).await?);
        assert_eq!(next(&mut listener).await?, Notification::KeyChanged("aaaaaaaaaaa1".to_owned()));
        assert!(store.find_credential("aaaaaaaaaaa1").await?.is_none());
        assert!(store.revoke_key("ada", "aaaaaaaaaaa1", &revoke).await?, "it exists");
        let sql = &mut administrator(database).await?;
        assert_eq!(count(sql, "audit_log WHERE action = 'key.revoke'").await?, 1);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn key_belongs_to_one_user_of_its_name() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        let api = database.store(DatabaseRole::Api)?;
        let mut writer = database.writer().await?;
        create(&api, "aaaaaaaaaaa1", DAY).await?;
        let mut listener = api.listen_for_key_changes().await?;
        writer.mark_users_deleted(&["ada".to_owned()]).await?;
        assert_eq!(next(&mut listener).await?, Notification::KeyChanged("aaaaaaaaaaa1".to_owned()));
        assert!(api.find_credential("aaaaaaaaaaa1").await?.is_none());
        let mut user = User {
            name: "ada".to_owned(),
            uid: Uuid::now_v7(),
            display_name: None,
            github_user: None,
            role: "User".to_owned(),
        };
        writer.upsert_users(std::slice::from_ref(&user)).await?;
        assert!(api.find_credential("aaaaaaaaaaa1").await?.is_some(), "the user exists again");
        writer.upsert_users(std::slice::from_ref(&user)).await?;
        assert!(api.find_credential("aaaaaaaaaaa1").await?.is_some(), "nothing has changed");
        // Another user with the same name.
        user.uid = Uuid::now_v7();
        for _ in 0..2 {
            writer.upsert_users(std::slice::from_ref(&user)).await?;
        }
        assert!(api.find_credential("aaaaaaaaaaa1").await?.is_none());
        for _ in 0..2 {
            assert_eq!(next(&mut listener).await?, Notification::KeyChanged("aaaaaaaaaaa1".to_owned()));
        }
        create(&api, "aaaaaaaaaaa2", DAY).await?;
        writer.upsert_users(&[user]).await?;
        assert!(api.find_credential("aaaaaaaaaaa2").await?.is_some(), "a key of the new user");
        let sql = &mut administrator(database).await?;
        let revoked = "SELECT string_agg(object_name || ' ' || actor, ', ') FROM audit_log WHERE action = 'key.revoke'";
        assert_eq!(value(sql, revoked).await?, "aaaaaaaaaaa1 odc_worker");
        Ok(())
    })
    .await
}
