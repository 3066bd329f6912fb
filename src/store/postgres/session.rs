//! One connection to a server: implements diesel-async's connection trait on the driver itself.
//! diesel-async's own connection keeps the text of a server's error and drops its SQLSTATE; this
//! one passes the driver's error on whole (see `driver_error`).

use std::{
    any::TypeId, collections::HashMap, error::Error as StdError, future::poll_fn, task::Poll,
};

use bytes::BytesMut;
use diesel::{
    QueryResult,
    pg::{Pg, PgMetadataLookup, PgQueryBuilder, PgTypeMetadata},
    query_builder::{
        AsQuery, QueryBuilder, QueryFragment, QueryId, bind_collector::RawBytesBindCollector,
    },
    result::Error as SqlError,
};
use diesel_async::{AsyncConnectionCore, SimpleAsyncConnection};
use futures_util::{StreamExt, TryStreamExt, future::BoxFuture, stream::BoxStream};
use tokio::task::JoinHandle;
use tokio_postgres::{
    Client, Connection, Error, Socket,
    tls::TlsStream,
    types::{IsNull, ToSql, Type, to_sql_checked},
};

use super::row::Row;

/// Ends with the connection; says why where it broke.
type Driver = JoinHandle<Result<(), Error>>;

pub(super) struct Session {
    client: Client,
    /// Taken when the connection is found closed.
    driver: Option<Driver>,
    /// Never evicted: the relay has few statements.
    prepared: HashMap<Key, tokio_postgres::Statement>,
}

impl Session {
    pub(super) fn new((client, driver): (Client, Driver)) -> Self {
        Self {
            client,
            driver: Some(driver),
            prepared: HashMap::new(),
        }
    }

    /// Diesel's error for the driver's. If the client only knows that the connection is closed, the
    /// reason is what the connection's task ended with.
    async fn failed(&mut self, error: Error) -> SqlError {
        if error.is_closed()
            && let Some(driver) = self.driver.take()
            && let Ok(Err(cause)) = driver.await
        {
            return wrap(cause);
        }
        wrap(error)
    }

    async fn prepare(
        &mut self,
        key: Key,
        text: &str,
        types: &[Type],
    ) -> Result<tokio_postgres::Statement, Error> {
        if let Some(statement) = self.prepared.get(&key) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare_typed(text, types).await?;
        self.prepared.insert(key, statement.clone());
        Ok(statement)
    }

    async fn rows(&mut self, asked: QueryResult<Asked>) -> QueryResult<tokio_postgres::RowStream> {
        let Asked {
            key,
            text,
            types,
            values,
        } = asked?;
        let rows = match self.prepare(key, &text, &types).await {
            Ok(statement) => self.client.query_raw(&statement, values).await,
            Err(error) => Err(error),
        };
        match rows {
            Ok(rows) => Ok(rows),
            Err(error) => Err(self.failed(error).await),
        }
    }
}

/// Keeps a connection going.
pub(super) fn drive<S>(mut connection: Connection<Socket, S>) -> Driver
where
    S: TlsStream + Unpin + Send + 'static,
{
    tokio::spawn(poll_fn(move |context| {
        loop {
            return match connection.poll_message(context) {
                // Notices.
                Poll::Ready(Some(Ok(_))) => continue,
                Poll::Ready(Some(Err(error))) => Poll::Ready(Err(error)),
                Poll::Ready(None) => Poll::Ready(Ok(())),
                Poll::Pending => Poll::Pending,
            };
        }
    }))
}

/// Puts the driver's error into a variant of Diesel's that keeps it whole.
fn wrap(error: Error) -> SqlError {
    SqlError::QueryBuilderError(Box::new(error))
}

/// The driver's error inside Diesel's.
pub(super) fn driver_error(error: &SqlError) -> Option<&Error> {
    match error {
        SqlError::QueryBuilderError(error) => error.downcast_ref(),
        _ => None,
    }
}

/// The cache key of a statement.
#[derive(PartialEq, Eq, Hash)]
enum Key {
    /// The query's type, where that alone decides the text.
    Type(TypeId),
    Text(String),
}

/// A query as the server takes it.
struct Asked {
    key: Key,
    text: String,
    types: Vec<Type>,
    values: Vec<Bound>,
}

impl Asked {
    fn new<Q: QueryFragment<Pg> + QueryId>(query: &Q) -> QueryResult<Self> {
        let mut text = PgQueryBuilder::default();
        query.to_sql(&mut text, &Pg)?;
        let text = text.finish();
        let mut bound = RawBytesBindCollector::<Pg>::new();
        query.collect_binds(&mut bound, &mut BuiltIn, &Pg)?;
        let types = bound.metadata.iter().map(|metadata| {
            let oid = metadata.oid();
            let oid = oid.map_err(|error| SqlError::SerializationError(Box::new(error)))?;
            let unknown = || SqlError::SerializationError(format!("type {oid}").into());
            Type::from_oid(oid).ok_or_else(unknown)
        });
        Ok(Self {
            key: Q::query_id().map_or_else(|| Key::Text(text.clone()), Key::Type),
            types: types.collect::<QueryResult<_>>()?,
            text,
            values: bound.binds.into_iter().map(Bound).collect(),
        })
    }
}

/// The tables have built-in types only: nothing is looked up.
struct BuiltIn;

impl PgMetadataLookup for BuiltIn {
    fn lookup_type(&mut self, _: &str, _: Option<&str>) -> PgTypeMetadata {
        PgTypeMetadata::new(0, 0)
    }
}

/// A value that Diesel has written out.
#[derive(Debug)]
struct Bound(Option<Vec<u8>>);

impl ToSql for Bound {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        Ok(match &self.0 {
            Some(bytes) => {
                out.extend_from_slice(bytes);
                IsNull::No
            }
            None => IsNull::Yes,
        })
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

impl SimpleAsyncConnection for Session {
    async fn batch_execute(&mut self, texts: &str) -> QueryResult<()> {
        match self.client.batch_execute(texts).await {
            Ok(()) => Ok(()),
            Err(error) => Err(self.failed(error).await),
        }
    }
}

impl AsyncConnectionCore for Session {
    type ExecuteFuture<'conn, 'query> = BoxFuture<'conn, QueryResult<usize>>;
    type LoadFuture<'conn, 'query> = BoxFuture<'conn, QueryResult<Self::Stream<'conn, 'query>>>;
    type Stream<'conn, 'query> = BoxStream<'static, QueryResult<Row>>;
    type Row<'conn, 'query> = Row;
    type Backend = Pg;

    fn load<'conn, 'query, T>(&'conn mut self, source: T) -> Self::LoadFuture<'conn, 'query>
    where
        T: AsQuery + 'query,
        T::Query: QueryFragment<Pg> + QueryId + 'query,
    {
        let asked = Asked::new(&source.as_query());
        Box::pin(async move {
            let rows = self.rows(asked).await?;
            Ok(rows.map_ok(Row).map_err(wrap).boxed())
        })
    }

    fn execute_returning_count<'conn, 'query, T>(
        &'conn mut self,
        source: T,
    ) -> Self::ExecuteFuture<'conn, 'query>
    where
        T: QueryFragment<Pg> + QueryId + 'query,
    {
        let asked = Asked::new(&source);
        Box::pin(async move {
            let mut rows = std::pin::pin!(self.rows(asked).await?);
            while rows.try_next().await.map_err(wrap)?.is_some() {}
            let touched = rows.rows_affected().unwrap_or_default();
            Ok(usize::try_from(touched).unwrap_or(usize::MAX))
        })
    }
}
