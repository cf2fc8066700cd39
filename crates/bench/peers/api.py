"""The peer of `odc api`: looks up the API key and records its use in the database at every request."""

import hashlib
import json
import os
import uuid
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Annotated, Any

import asyncpg
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel

# As many as `odc api` has.
CONNECTIONS = 8
QUEUE = "peer_reservations"


@asynccontextmanager
async def lifespan(app: FastAPI):
    async with asyncpg.create_pool(os.environ["DATABASE_URL"], min_size=CONNECTIONS, max_size=CONNECTIONS) as pool:
        app.state.pool = pool
        yield


app = FastAPI(lifespan=lifespan)
router = APIRouter(prefix="/api/v1")


class User(BaseModel):
    id: int
    name: str


class Me(BaseModel):
    user: str


class NewServer(BaseModel):
    name: str
    flavor: str
    lifetime: str
    home: dict[str, Any]
    idle: dict[str, Any]


class Server(BaseModel):
    name: str
    status: str
    spec: dict[str, Any]
    created_at: datetime


class Accepted(BaseModel):
    reservation_id: uuid.UUID
    name: str


async def authenticate(
    request: Request, credentials: Annotated[HTTPAuthorizationCredentials, Depends(HTTPBearer())]
) -> User:
    key_hash = hashlib.sha256(credentials.credentials.encode()).hexdigest()
    async with request.app.state.pool.acquire() as connection:
        row = await connection.fetchrow(
            """
            SELECT u.user_id, u.username, k.key_id FROM peer.api_keys k JOIN peer.api_users u USING (user_id)
            WHERE k.key_hash = $1 AND k.is_active AND u.is_active AND k.expires_at > now()
            """,
            key_hash,
        )
        if row is None:
            raise HTTPException(status_code=401, detail="unknown API key")
        await connection.execute("UPDATE peer.api_keys SET last_used_at = now() WHERE key_id = $1", row["key_id"])
    return User(id=row["user_id"], name=row["username"])


Caller = Annotated[User, Depends(authenticate)]


@router.get("/me")
async def get_me(user: Caller) -> Me:
    return Me(user=user.name)


@router.get("/devservers/{name}")
async def get_server(request: Request, name: str, user: Caller) -> Server:
    async with request.app.state.pool.acquire() as connection:
        row = await connection.fetchrow(
            "SELECT name, status, spec, created_at FROM peer.reservations WHERE user_id = $1 AND name = $2",
            user.id,
            name,
        )
    if row is None:
        raise HTTPException(status_code=404, detail="no such server")
    return Server(name=row["name"], status=row["status"], spec=json.loads(row["spec"]), created_at=row["created_at"])


@router.post("/devservers", status_code=202)
async def create_server(request: Request, server: NewServer, user: Caller) -> Accepted:
    reservation_id = uuid.uuid4()
    spec = server.model_dump_json(exclude={"name"})
    message = json.dumps({"reservation_id": str(reservation_id), "user": user.name, "name": server.name})
    async with request.app.state.pool.acquire() as connection, connection.transaction():
        await connection.execute(
            "INSERT INTO peer.reservations (reservation_id, user_id, name, spec) VALUES ($1, $2, $3, $4::jsonb)",
            reservation_id,
            user.id,
            server.name,
            spec,
        )
        await connection.execute("SELECT pgmq.send($1, $2::jsonb)", QUEUE, message)
    return Accepted(reservation_id=reservation_id, name=server.name)


app.include_router(router)
